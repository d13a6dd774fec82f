"""Recipes: what a user writes in one YAML file, as frozen pydantic models.

Every key has a default or is required; unknown keys are refused. :mod:`hbp_prep.pipeline.load` reads files into these.
"""

import re
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from hbp_prep.planning.types import MOST_GPUS

_LENGTH = re.compile(r"(\d+)\s*([KkMm]?)")
_SUFFIX_TOKENS = {"": 1, "k": 1024, "m": 1024 * 1024}


def parse_length(value: Any) -> Any:
    """Tokens from ``16384``, ``"16K"`` (x 1,024) or ``"1M"`` (x 1,048,576)."""
    if isinstance(value, str):
        match = _LENGTH.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a length; write 16384, 16K or 1M")
        return int(match[1]) * _SUFFIX_TOKENS[match[2].lower()]
    return value


def length_name(num_tokens: int) -> str:
    """The short name of a length: ``16K``, ``1M``, or the number itself where neither divides it."""
    for suffix in ("m", "k"):
        if num_tokens % _SUFFIX_TOKENS[suffix] == 0:
            return f"{num_tokens // _SUFFIX_TOKENS[suffix]}{suffix.upper()}"
    return str(num_tokens)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Length = Annotated[int, BeforeValidator(parse_length), Field(gt=0, le=2**30)]
Paths = Annotated[list[str], BeforeValidator(_as_list)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Source(_Part):
    """One named source of the mixture."""

    name: str = Field(min_length=1)
    """Unique name; appears in every report."""
    paths: Paths = []
    """Files or globs (JSON lines and arrays, also .gz and .zst; Parquet; Arrow), folders saved by `datasets`, or fsspec
    addresses (`s3://`, `gs://`, `hf://`)."""
    dataset: str | None = Field(default=None, min_length=1)
    """Instead of paths: a dataset's name on the Hugging Face hub."""
    subset: str | None = None
    """The hub dataset's configuration, where it has several."""
    split: str | None = None
    """The split of a dataset (by name or saved folder), where it has several."""
    format: str = "auto"
    """Row format, or `auto`: detected from the first rows."""
    columns: dict[str, str] = {}
    """Renames columns: {name that the format expects: name in the file}; `role` and `content` rename message keys."""
    roles: dict[str, str] = {}
    """Further names of roles: {name in the file: system, user, assistant or tool}."""
    where: str | None = Field(default=None, min_length=1)
    """Keep only rows for which this polars SQL expression over the file's columns is true, e.g. `score >= 4`."""
    weight: float = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    """How often each row is used: 0.5 takes a random half, 2 uses each row twice."""
    limit: int | None = Field(default=None, gt=0)
    """At most this many samples, chosen at random with the seed."""

    @model_validator(mode="after")
    def _one_origin(self) -> "Source":
        if bool(self.paths) == (self.dataset is not None):
            raise ValueError("a source needs paths or a dataset, and only one of them")
        if self.subset is not None and self.dataset is None:
            raise ValueError("subset goes with dataset")
        return self


class Tokenizer(_Part):
    """Tokenizer and chat template."""

    path: str
    """Folder with `tokenizer.json` and `tokenizer_config.json` (Hugging Face layout), or a tiktoken rank file."""
    chat_template: str | None = None
    """A built-in template's name, a `.jinja` file, or nothing: the folder's own template."""
    loss_on: Literal["all", "last"] = "all"
    """Which assistant turns are trained."""
    special_tokens_in_content: Literal["escape", "allow", "reject"] = "escape"
    """Text of a special token inside a row: `escape` encodes it as ordinary text, `allow` as that token."""
    backend: Literal["auto", "tokenizers", "gigatoken"] = "auto"
    """What encodes: `auto` takes the fast one where it is proven to give the same ids."""


class OverLength(_Part):
    """Samples longer than the longest packing group, and too short ones."""

    policy: Literal["drop", "truncate", "raise", "split"] = "drop"
    """`drop` lists them as rejected, `truncate` cuts ids and mask together, `split` makes parts, `raise` stops."""
    min_tokens: int = Field(default=1, ge=1)
    """Samples with fewer tokens are rejected as too short."""


class Group(_Part):
    """A packing group: a packing length with its training setting."""

    length: Length
    """Tokens that a pack may hold, e.g. `16K`."""
    sp_degree: int = Field(default=1, ge=1, le=10_000)
    """GPUs that share one pack (Ulysses sequence parallelism)."""
    gc_layers: int = Field(default=0, ge=0, le=10_000)
    """Layers with gradient checkpointing."""


class Packing(_Part):
    """How samples become packs."""

    groups: list[Group] = Field(min_length=1)
    """Packing groups, each with its own length."""
    strategy: str = "bfs"
    """Packing strategy; `hbp-prep schema` lists the names."""
    shard_tokens: int = Field(default=2**24, ge=2**16)
    """Most tokens in one shard file."""

    @field_validator("groups")
    @classmethod
    def _ascending(cls, groups: list[Group]) -> list[Group]:
        ordered = sorted(groups, key=lambda group: group.length)
        for left, right in pairwise(ordered):
            if left.length == right.length:
                raise ValueError(f"two packing groups have the length {length_name(left.length)}; lengths must differ")
        return ordered


class Cluster(_Part):
    """The GPUs that will train. Sizes are exact; times are predictions."""

    world_size: int = Field(ge=1, le=MOST_GPUS)
    """GPUs in all."""
    gpus_per_node: int = Field(default=8, ge=1, le=10_000)
    """GPUs in one node."""
    hardware: str = "h100-80g"
    """Preset of the cost model."""
    model: str = "llama3.1-8b"
    """Preset of the cost model."""


class Batching(_Part):
    """How packs become micro-steps and optimizer steps."""

    micro_steps_per_step: int = Field(default=4, ge=1)
    """Micro-steps between two optimizer updates (one fewer in some steps where it does not divide)."""
    order: Literal["stratified", "sorted", "random"] = "stratified"
    """`stratified` (balanced micro-steps, steps that look like the corpus), `sorted` (ascending cost) or `random`."""


class CurriculumPart(_Part):
    """In what order packing groups come."""

    kind: Literal["none", "two_phase", "alternate", "ramp"] = "none"
    """`two_phase`: the shortest packing group alone first, then all in proportion. `alternate`: the same first phase,
    then whole steps of long and of short groups in turn. `ramp`: the longest group allowed grows phase by phase."""
    first_phase_steps: int | None = Field(default=None, ge=0)
    """Optimizer steps of the first phase (`ramp`: of every phase but the last)."""
    first_phase_fraction: float | None = Field(default=None, ge=0, le=1)
    """The first phase as a fraction of the steps that the shortest group can fill."""

    @model_validator(mode="after")
    def _one_size(self) -> "CurriculumPart":
        sizes = [self.first_phase_steps, self.first_phase_fraction]
        if self.kind != "none" and sizes.count(None) != 1:
            raise ValueError(f"a {self.kind} curriculum needs first_phase_steps or first_phase_fraction, and only one")
        if self.kind == "none" and sizes != [None, None]:
            raise ValueError("first_phase_steps and first_phase_fraction go with kind: two_phase, alternate or ramp")
        return self


class Recipe(_Part):
    """A whole recipe."""

    name: str = Field(min_length=1)
    """Names the run in reports."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """The one seed; every random choice derives from it."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes over the packs; each draws its steps anew."""
    sources: list[Source] = Field(min_length=1)
    """The corpora."""
    deduplicate: bool = False
    """Leave out all but the first of equal conversations, over all sources."""
    tokenizer: Tokenizer
    over_length: OverLength = OverLength()
    max_rejected_fraction: float = Field(default=0.05, ge=0, le=1)
    """The job stops when a larger share of rows is faulty (rows left out by length, weight or limit do not count)."""
    packing: Packing
    cluster: Cluster
    batching: Batching = Batching()
    curriculum: CurriculumPart = CurriculumPart()

    @field_validator("sources")
    @classmethod
    def _unique_names(cls, sources: list[Source]) -> list[Source]:
        names = [source.name for source in sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two sources are named {name!r}; names must differ")
        return sources
