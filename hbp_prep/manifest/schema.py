"""The contract's types: ``manifest.json`` as frozen dataclasses. ``tables.py`` holds the columns of every Arrow file.

Every ``from_dict`` checks types by hand and names the key that is wrong; whether the numbers agree with the files is
``verify``'s business.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.fields import Fields
from hbp_prep.manifest.paths import check_relative

FORMAT = "hbp-manifest"
FORMAT_VERSION = 1
LAYOUT_PACKED = "packed"
MANIFEST_NAME = "manifest.json"
SHARDS_FOLDER = "shards"
SCHEDULE_FOLDER = "schedule"
SAMPLES_NAME = "samples.arrow"
REJECTED_NAME = "rejected.arrow"
MICRO_STEPS_NAME = "schedule/micro_steps.arrow"
ASSIGNMENTS_NAME = "schedule/assignments.arrow"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One Arrow file: path relative to the folder, number of rows, size in bytes, SHA-256 of its bytes."""

    path: str
    rows: int
    bytes: int
    sha256: str

    @classmethod
    def from_fields(cls, fields: Fields) -> "FileEntry":
        return cls(
            path=check_relative(fields.text("path"), fields.path("path")),
            rows=fields.integer("rows"),
            bytes=fields.integer("bytes", minimum=1),
            sha256=fields.text("sha256"),
        )


@dataclass(frozen=True, kw_only=True)
class ShardEntry(FileEntry):
    """One data shard; ``num_tokens`` is the sum over its packs."""

    num_tokens: int

    @classmethod
    def from_fields(cls, fields: Fields) -> "ShardEntry":
        return cls(**asdict(FileEntry.from_fields(fields)), num_tokens=fields.integer("num_tokens"))


@dataclass(frozen=True, kw_only=True)
class GroupEntry:
    """One packing group: its training setting, its sums and its shards in pack-id order.

    ``dp_size = world_size // sp_degree``; DP rank d is the ranks ``d * sp_degree`` to ``(d + 1) * sp_degree - 1``.
    """

    name: str
    pack_length: int
    sp_degree: int
    dp_size: int
    gc_layers: int
    num_packs: int
    num_tokens: int
    num_loss_tokens: int
    shards: tuple[ShardEntry, ...]

    @classmethod
    def from_fields(cls, fields: Fields) -> "GroupEntry":
        return cls(
            name=fields.text("name"),
            pack_length=fields.integer("pack_length", minimum=1),
            sp_degree=fields.integer("sp_degree", minimum=1),
            dp_size=fields.integer("dp_size", minimum=1),
            gc_layers=fields.integer("gc_layers"),
            num_packs=fields.integer("num_packs"),
            num_tokens=fields.integer("num_tokens"),
            num_loss_tokens=fields.integer("num_loss_tokens"),
            shards=tuple(ShardEntry.from_fields(shard) for shard in fields.children("shards")),
        )


@dataclass(frozen=True, kw_only=True)
class ScheduleEntry:
    """The schedule's files and shape.

    Attributes:
        micro_steps_per_step: The most micro-steps that an optimizer step has.
        phases: Names of the curriculum's phases, in order of first use.
        replanned: The schedule was made for another world size than the packs were; only then may assignments hold
            pack id -1 (an empty pack).
    """

    micro_steps: FileEntry
    assignments: FileEntry
    num_steps: int
    num_micro_steps: int
    micro_steps_per_step: int
    phases: tuple[str, ...]
    epochs: int
    replanned: bool = False

    @classmethod
    def from_fields(cls, fields: Fields) -> "ScheduleEntry":
        return cls(
            micro_steps=FileEntry.from_fields(fields.child("micro_steps")),
            assignments=FileEntry.from_fields(fields.child("assignments")),
            num_steps=fields.integer("num_steps"),
            num_micro_steps=fields.integer("num_micro_steps"),
            micro_steps_per_step=fields.integer("micro_steps_per_step", minimum=1),
            phases=fields.texts("phases"),
            epochs=fields.integer("epochs", minimum=1),
            replanned=fields.flag("replanned"),
        )


@dataclass(frozen=True, kw_only=True)
class SourceTotals:
    """What one source contributes to training."""

    num_samples: int
    num_tokens: int
    num_loss_tokens: int

    @classmethod
    def from_fields(cls, fields: Fields) -> "SourceTotals":
        return cls(
            num_samples=fields.integer("num_samples"),
            num_tokens=fields.integer("num_tokens"),
            num_loss_tokens=fields.integer("num_loss_tokens"),
        )


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over everything, one epoch. ``rows_read`` = distinct input rows in samples plus rejected rows.

    Attributes:
        lost_tokens: Tokens of faultless rows that are in no sample, each use of a row counted: of rows without any, by
            the reason of their rejection; of others, as ``truncated`` or ``split``.
    """

    num_samples: int
    num_tokens: int
    num_loss_tokens: int
    rows_read: int
    num_rejected: int
    rejected_by_reason: dict[str, int]
    by_source: dict[str, SourceTotals]
    lost_tokens: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Fields) -> "Totals":
        sources = fields.named_children("by_source")
        return cls(
            num_samples=fields.integer("num_samples"),
            num_tokens=fields.integer("num_tokens"),
            num_loss_tokens=fields.integer("num_loss_tokens"),
            rows_read=fields.integer("rows_read"),
            num_rejected=fields.integer("num_rejected"),
            rejected_by_reason=fields.counts("rejected_by_reason"),
            by_source={name: SourceTotals.from_fields(source) for name, source in sources.items()},
            lost_tokens=fields.counts("lost_tokens"),
        )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All of ``manifest.json`` but its format, version, layout and checksum.

    Attributes:
        created_by: Name -> version of what wrote the folder.
        tokenizer: At least ``name`` and ``vocab_size`` (token ids are in ``[0, vocab_size)``); fingerprints, special
            ids.
        metrics: See docs/metrics.md.
        cost_model: What ``hbp_prep.cost.model.CostModel.from_dict`` takes.
    """

    fingerprint: str
    created_by: dict[str, Any]
    seed: int
    tokenizer: dict[str, Any]
    world_size: int
    gpus_per_node: int
    groups: tuple[GroupEntry, ...]
    schedule: ScheduleEntry
    samples: FileEntry
    rejected: FileEntry
    totals: Totals
    metrics: dict[str, Any]
    model: dict[str, Any]
    cost_model: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        """Token ids are in ``[0, vocab_size)``."""
        return int(self.tokenizer["vocab_size"])

    def group(self, name: str) -> GroupEntry:
        """The packing group of that name.

        Raises:
            ManifestError: there is none.
        """
        for group in self.groups:
            if group.name == name:
                return group
        raise ManifestError(f"no packing group {name!r}; there are {', '.join(group.name for group in self.groups)}")

    def files(self) -> tuple[FileEntry, ...]:
        """Every Arrow file of the folder, shards first."""
        shards = [shard for group in self.groups for shard in group.shards]
        return (*shards, self.schedule.micro_steps, self.schedule.assignments, self.samples, self.rejected)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; ``from_dict`` is its inverse."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, "layout": LAYOUT_PACKED, **asdict(self)}

    @classmethod
    def from_dict(cls, value: object) -> "Manifest":
        """A checked manifest from parsed JSON.

        Raises:
            ManifestError: another format, a newer version, or a key that is missing or of the wrong type (named).
        """
        fields = Fields(value)
        check_format(fields.plain())
        tokenizer = fields.child("tokenizer")
        tokenizer.text("name")
        tokenizer.integer("vocab_size", minimum=1)
        manifest = cls(
            fingerprint=fields.text("fingerprint"),
            created_by=fields.child("created_by").plain(),
            seed=fields.integer("seed"),
            tokenizer=tokenizer.plain(),
            world_size=fields.integer("world_size", minimum=1),
            gpus_per_node=fields.integer("gpus_per_node", minimum=1),
            groups=tuple(GroupEntry.from_fields(group) for group in fields.children("groups")),
            schedule=ScheduleEntry.from_fields(fields.child("schedule")),
            samples=FileEntry.from_fields(fields.child("samples")),
            rejected=FileEntry.from_fields(fields.child("rejected")),
            totals=Totals.from_fields(fields.child("totals")),
            metrics=fields.child("metrics").plain(),
            model=fields.child("model").plain(),
            cost_model=fields.child("cost_model").plain(),
        )
        _check_groups(manifest)
        return manifest


def check_format(value: Mapping[str, Any]) -> None:
    """Refuse what is not a manifest of a version and layout that this code reads."""
    if value.get("format") != FORMAT:
        raise ManifestError(f"format: expected {FORMAT!r}, found {value.get('format')!r}; this is not a manifest")
    version = value.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ManifestError(f"format_version: expected a whole number of at least 1, found {version!r}")
    if version > FORMAT_VERSION:
        raise ManifestError(
            f"format_version: {version} is newer than {FORMAT_VERSION}, the newest that this hbp-prep reads; update it"
        )
    if value.get("layout") != LAYOUT_PACKED:
        raise ManifestError(f"layout: expected {LAYOUT_PACKED!r}, found {value.get('layout')!r}")


def _check_groups(manifest: Manifest) -> None:
    names = [group.name for group in manifest.groups]
    if not names or len(set(names)) < len(names):
        raise ManifestError(f"groups: expected at least one packing group, each of its own name; found {names}")
    for index, group in enumerate(manifest.groups):
        if group.dp_size * group.sp_degree != manifest.world_size:
            raise ManifestError(
                f"groups[{index}].dp_size: {group.dp_size} x sp_degree {group.sp_degree} is not "
                f"world_size {manifest.world_size}"
            )
    paths = [file.path for file in manifest.files()]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ManifestError(f"{twice} is named twice; every file has one entry")
