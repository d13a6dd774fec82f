"""What each stage does, in terms of the rooms below. No stage reads anything but its inputs and the folder."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hbp_prep import __version__, files
from hbp_prep.corpus.types import Corpus
from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import MODELS
from hbp_prep.errors import DataError, ManifestError
from hbp_prep.manifest.document import load_manifest
from hbp_prep.manifest.reader import check_file
from hbp_prep.pipeline.folder import OutputFolder
from hbp_prep.pipeline.load import resolved_yaml
from hbp_prep.pipeline.recipe import Recipe
from hbp_prep.planning.persist import load_plan, save_plan
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import PlanSpec, Samples
from hbp_prep.progress import Progress
from hbp_prep.report.write import write_report
from hbp_prep.sharding.finish import finish
from hbp_prep.sharding.shards import write_shards
from hbp_prep.tokenization.rejected import count_rejected
from hbp_prep.tokenization.run import tokenize_corpus
from hbp_prep.tokenization.table import SampleTable, build_sample_table, check_rejected_fraction
from hbp_prep.tokenization.tokenizer import ChatTokenizer

_NAMED_VERSIONS = ("numba", "numpy", "ortools", "pyarrow", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every stage may use."""

    recipe: Recipe
    folder: OutputFolder
    map_tasks: Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
    progress: Progress
    corpus: Corpus
    tokenizer: ChatTokenizer
    plan_spec: PlanSpec
    cost: CostModel
    fingerprint: str


def tokenize(context: Context) -> list[Path]:
    """Rows to the token store, and the table of samples."""
    folder, recipe = context.folder, context.recipe
    summary = tokenize_corpus(
        context.corpus,
        context.tokenizer.spec,
        folder=folder.tokens,
        seed=recipe.seed,
        tokenizer=context.tokenizer,
        map_tasks=context.map_tasks,
        progress=context.progress,
    )
    context.progress.say(summary.sentence)
    table = build_sample_table(
        context.corpus,
        folder.tokens,
        seed=recipe.seed,
        max_tokens=recipe.packing.groups[-1].length,
        over_length=recipe.over_length.policy,
        min_tokens=recipe.over_length.min_tokens,
        rejected_path=folder.rejected,
        progress=context.progress,
    )
    check_rejected_fraction(folder.rejected, table, context.corpus, recipe.max_rejected_fraction)
    if not len(table):
        counts = ", ".join(f"{reason} {count:,}" for reason, count in count_rejected(folder.rejected).items())
        raise DataError(f"no row of the sources can be trained on ({counts}); {folder.rejected} lists them")
    table.save(folder.table)
    return [folder.table, folder.rejected]


def planned_samples(context: Context) -> Samples:
    """What the planner sees of the tokenised samples."""
    table = SampleTable.load(context.folder.table)
    return Samples(
        num_tokens=table.num_tokens,
        num_loss_tokens=table.num_loss_tokens,
        source=table.source,
        source_names=tuple(source.name for source in context.corpus.sources),
    )


def plan(context: Context) -> list[Path]:
    """Lengths to packs, micro-steps and steps."""
    samples = planned_samples(context)
    save_plan(make_plan(context.plan_spec, samples, context.cost, context.progress), context.folder.plan)
    return sorted(context.folder.plan.iterdir())


def shard(context: Context) -> list[Path]:
    """Tokens to shards in training order; then schedule, samples and, last, the manifest."""
    folder, recipe = context.folder, context.recipe
    shards = write_shards(
        folder.root,
        plan_folder=folder.plan,
        store_folder=folder.tokens,
        table_path=folder.table,
        fingerprint=context.fingerprint,
        shard_tokens=recipe.packing.shard_tokens,
        map_tasks=context.map_tasks,
        progress=context.progress,
    )
    files.write_bytes(folder.resolved, resolved_yaml(recipe).encode())
    table = SampleTable.load(folder.table)
    finish(
        folder.root,
        plan=load_plan(folder.plan),
        table=table,
        store_folder=folder.tokens,
        file_names=[file.path for file in context.corpus.files],
        source_names=[source.name for source in context.corpus.sources],
        rejected_path=folder.rejected,
        rows_read=sum(file.num_rows for file in context.corpus.files),
        shards=shards,
        tokenizer=context.tokenizer.info,
        gpus_per_node=recipe.cluster.gpus_per_node,
        model={"name": recipe.cluster.model, **asdict(MODELS[recipe.cluster.model])},
        cost_model=context.cost.to_dict(),
        fingerprint=context.fingerprint,
        created_by=created_by(),
    )
    return [folder.manifest]


def report(context: Context) -> list[Path]:
    """The report on the finished folder."""
    files.write_bytes(context.folder.resolved, resolved_yaml(context.recipe).encode())
    write_report(context.folder.root, context.progress)
    return [context.folder.resolved, context.folder.metrics, context.folder.page]


def has_all_files(folder: OutputFolder) -> bool:
    """Whether every file that the manifest names stands there with its size."""
    try:
        for entry in load_manifest(folder.root).files():
            check_file(folder.root, entry, checksum=False)
    except ManifestError:
        return False
    return True


def created_by() -> dict[str, str]:
    """Versions of this program and of the libraries that its results depend on."""
    return {"hbp-prep": __version__} | {name: version(name) for name in _NAMED_VERSIONS}
