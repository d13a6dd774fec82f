"""From the recipe to what each room takes, and to the flat inputs by which the ledger knows a stage's output."""

from dataclasses import dataclass
from typing import Any

from hbp_prep import __version__
from hbp_prep.corpus.types import Corpus, SourceSpec
from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.errors import ConfigError
from hbp_prep.fingerprint import fingerprint
from hbp_prep.pipeline.recipe import Recipe, length_name
from hbp_prep.planning.strategies import STRATEGIES
from hbp_prep.planning.types import Curriculum, PackingGroup, PlanSpec
from hbp_prep.planning.validate import validate_spec
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.tokenizer import TokenizationSpec


def source_specs(recipe: Recipe) -> tuple[SourceSpec, ...]:
    """The corpus room's sources."""
    return tuple(
        SourceSpec(
            name=source.name,
            paths=tuple(source.paths),
            dataset=source.dataset,
            subset=source.subset,
            split=source.split,
            format=source.format,
            columns=source.columns,
            roles=source.roles,
            where=source.where,
            weight=source.weight,
            limit=source.limit,
        )
        for source in recipe.sources
    )


def tokenization_spec(recipe: Recipe) -> TokenizationSpec:
    """The tokenization room's settings."""
    part = recipe.tokenizer
    return TokenizationSpec(
        tokenizer=part.path,
        chat_template=part.chat_template,
        loss_on=part.loss_on,
        special_tokens_in_content=part.special_tokens_in_content,
        backend=part.backend,
    )


def plan_spec(recipe: Recipe) -> PlanSpec:
    """The planner's settings, checked.

    Raises:
        ConfigError: an unknown strategy, an SP degree that does not divide the world size or the length, ...
    """
    if recipe.packing.strategy not in STRATEGIES:
        near = did_you_mean(recipe.packing.strategy, STRATEGIES)
        raise ConfigError(f"packing.strategy: {recipe.packing.strategy!r} is not known{near}")
    groups = tuple(
        PackingGroup(
            name=length_name(group.length),
            pack_length=group.length,
            sp_degree=group.sp_degree,
            gc_layers=group.gc_layers,
        )
        for group in recipe.packing.groups
    )
    spec = PlanSpec(
        groups=groups,
        world_size=recipe.cluster.world_size,
        strategy=recipe.packing.strategy,
        order=recipe.batching.order,
        micro_steps_per_step=recipe.batching.micro_steps_per_step,
        curriculum=Curriculum(**recipe.curriculum.model_dump()),
        epochs=recipe.epochs,
        seed=recipe.seed,
    )
    validate_spec(spec)
    if recipe.over_length.min_tokens > groups[-1].pack_length:
        raise ConfigError(
            f"over_length.min_tokens is {recipe.over_length.min_tokens:,}, more than the longest packing length of "
            f"{groups[-1].pack_length:,} tokens; no sample could be used"
        )
    return spec


def cost_model(recipe: Recipe) -> CostModel:
    """The cost model of the recipe's cluster."""
    cluster = recipe.cluster
    return named_cost_model(cluster.model, cluster.hardware, cluster.gpus_per_node)


def named_cost_model(model: str, hardware: str, gpus_per_node: int) -> CostModel:
    """The cost model of a cluster, by the presets' names.

    Raises:
        ConfigError: the hardware or the model has no preset.
    """
    for key, name, presets in (("hardware", hardware, HARDWARE), ("model", model, MODELS)):
        if name not in presets:
            raise ConfigError(f"cluster.{key}: {name!r} is not known{did_you_mean(name, presets)}")
    return CostModel.build(MODELS[model], HARDWARE[hardware], gpus_per_node=gpus_per_node)


@dataclass(frozen=True, kw_only=True)
class StageInputs:
    """The flat inputs of every stage, and the fingerprint of the whole run."""

    tokenization: dict[str, Any]
    planning: dict[str, Any]
    sharding: dict[str, Any]
    report: dict[str, Any]
    fingerprint: str


def stage_inputs(recipe: Recipe, corpus: Corpus, tokenizer_fingerprint: str) -> StageInputs:
    """What each stage's output depends on: contents and settings, never the number of workers."""
    tokenization = {
        "hbp-prep": __version__,
        "tokenizer (contents, template, loss settings)": tokenizer_fingerprint,
        "sources (in order)": [source.name for source in recipe.sources],
        "longest packing length": recipe.packing.groups[-1].length,
        "deduplicate": recipe.deduplicate,
        **_flat("over_length", recipe.over_length.model_dump()),
    }
    for source in recipe.sources:
        keys: dict[str, Any] = {
            "files (path, contents, row format)": [
                [file.path, file.sha256, file.row_format]
                for file in corpus.files
                if corpus.sources[file.source].name == source.name
            ]
        }
        keys |= source.model_dump(include={"columns", "roles", "where", "weight", "limit"})
        tokenization |= {f"sources.{source.name}.{key}": value for key, value in keys.items()}
    if any(source.weight != 1 or source.limit is not None for source in recipe.sources):
        tokenization["seed"] = recipe.seed
    planning = {
        "hbp-prep": __version__,
        "samples": fingerprint(tokenization),
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "packing.groups": [group.model_dump() for group in recipe.packing.groups],
        "packing.strategy": recipe.packing.strategy,
        **_flat("cluster", recipe.cluster.model_dump()),
        **_flat("batching", recipe.batching.model_dump()),
        **_flat("curriculum", recipe.curriculum.model_dump()),
    }
    sharding = {"plan": fingerprint(planning), "packing.shard_tokens": recipe.packing.shard_tokens}
    run = fingerprint(sharding)
    return StageInputs(
        tokenization=tokenization,
        planning=planning,
        sharding=sharding,
        report={"run": run, "recipe": fingerprint(recipe.model_dump(mode="json"))},
        fingerprint=run,
    )


def _flat(prefix: str, part: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in part.items()}
