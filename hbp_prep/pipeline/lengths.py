"""What planning without tokens needs: samples and settings, from a file of lengths or from a recipe.

A file of lengths has a column ``num_tokens`` and may have ``source`` (text) and ``num_loss_tokens``: Parquet, Arrow IPC
(a prepared folder's own ``samples.arrow``, too) or CSV. A recipe is scanned and tokenised; its ``.work`` is kept
where a folder is named, and used again by ``hbp-prep run``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hbp_prep.cost.model import CostModel
from hbp_prep.engines.local import Engine
from hbp_prep.errors import ConfigError, DataError, first_line
from hbp_prep.pipeline.recipe import Recipe, length_name, parse_length
from hbp_prep.pipeline.runner import Runner
from hbp_prep.pipeline.specs import named_cost_model
from hbp_prep.planning.types import Curriculum, Int16, Int32, PackingGroup, PlanSpec, Samples
from hbp_prep.planning.validate import MOST_INT16, MOST_INT32, validate_spec
from hbp_prep.progress import Progress

GPUS_PER_NODE = 8
"""Of the cluster that a file of lengths is planned for."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be planned."""

    spec: PlanSpec
    samples: Samples
    cost: CostModel


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Planner settings of a call with ``--lengths``; the names are those of recipes."""

    groups: str
    world_size: int
    hardware: str
    model: str
    strategy: str
    micro_steps_per_step: int
    curriculum: Curriculum
    seed: int


def problem_of_lengths(path: Path, settings: Settings) -> Problem:
    """A problem from a file of lengths.

    Raises:
        ConfigError: a setting is wrong.
        DataError: the file cannot be read or lacks ``num_tokens``.
    """
    spec = PlanSpec(
        groups=parse_groups(settings.groups),
        world_size=settings.world_size,
        strategy=settings.strategy,
        order="stratified",
        micro_steps_per_step=settings.micro_steps_per_step,
        curriculum=settings.curriculum,
        epochs=1,
        seed=settings.seed,
    )
    validate_spec(spec)
    cost = named_cost_model(settings.model, settings.hardware, GPUS_PER_NODE)
    return Problem(spec=spec, samples=read_lengths(path), cost=cost)


def problem_of_recipe(recipe: Recipe, work: Path | None, engine: Engine, progress: Progress) -> Problem:
    """A problem from a recipe: its corpora are tokenised, in ``work`` (an output folder) or in a folder thrown away.

    Raises:
        HbpError: as ``hbp-prep run``, up to its planning stage.
    """
    if work is None:
        with TemporaryDirectory(prefix="hbp-prep-") as folder:
            return problem_of_recipe(recipe, Path(folder) / "lengths", engine, progress)
    runner = Runner(recipe, work, engine=engine, progress=progress)
    return Problem(spec=runner.plan_spec, samples=runner.tokenize(), cost=runner.cost)


def parse_groups(text: str) -> tuple[PackingGroup, ...]:
    """Packing groups from ``16K:1,128K:8`` or, with checkpointed layers, ``16K:1:28,128K:8:28``; ascending."""
    groups = []
    for part in text.split(","):
        length, *numbers = part.strip().split(":")
        if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
            raise ConfigError(f"--groups {text!r}: write LENGTH:SP_DEGREE[:GC_LAYERS], e.g. 16K:1,128K:8")
        try:
            pack_length = parse_length(length)
        except ValueError as error:
            raise ConfigError(f"--groups {text!r}: {error}") from error
        sp_degree, gc_layers = [*(int(number) for number in numbers), *(1, 0)[len(numbers) :]]
        groups.append(
            PackingGroup(
                name=length_name(pack_length), pack_length=pack_length, sp_degree=sp_degree, gc_layers=gc_layers
            )
        )
    return tuple(sorted(groups, key=lambda group: group.pack_length))


def read_lengths(path: Path) -> Samples:
    """Samples from a Parquet, Arrow IPC or CSV file.

    Raises:
        DataError: it cannot be read, has no rows, lacks ``num_tokens``, or holds a length that is no positive whole
            number, more loss tokens than tokens, or a source that is no name.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"--lengths {path}: its name ends in none of {', '.join(_READERS)}")
    try:
        table = reader(path)
    except FileNotFoundError:
        raise DataError(f"--lengths {path} does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"--lengths {path} cannot be read ({first_line(error)})") from error
    if "num_tokens" not in table.column_names:
        raise DataError(f"--lengths {path} has no column num_tokens; it has {', '.join(table.column_names) or 'none'}")
    if not table.num_rows:
        raise DataError(f"--lengths {path} has no rows")
    num_tokens = _whole_numbers(path, table, "num_tokens", least=1)
    has_loss = "num_loss_tokens" in table.column_names
    num_loss_tokens = _whole_numbers(path, table, "num_loss_tokens", least=0) if has_loss else num_tokens
    if (num_loss_tokens > num_tokens).any():
        row = int(np.flatnonzero(num_loss_tokens > num_tokens)[0])
        raise DataError(f"--lengths {path}: row {row} has more num_loss_tokens than num_tokens")
    source, names = _sources(path, table)
    return Samples(num_tokens=num_tokens, num_loss_tokens=num_loss_tokens, source=source, source_names=names)


def _arrow_file(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": pa.parquet.read_table,
    ".arrow": _arrow_file,
    ".csv": pa.csv.read_csv,
}


def _whole_numbers(path: Path, table: pa.Table, name: str, least: int) -> Int32:
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"--lengths {path}: {name} must hold whole numbers without gaps, it is {column.type}")
    values = column.to_numpy()
    wrong = np.flatnonzero((values < least) | (values > MOST_INT32))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"--lengths {path}: row {row}: {name} is {values[row]}; it must lie between {least} and {MOST_INT32:,}"
        )
    return values.astype(np.int32)


def _sources(path: Path, table: pa.Table) -> tuple[Int16, tuple[str, ...]]:
    if "source" not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.int16), ("all",)
    try:
        column = table.column("source").cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
    except pa.ArrowException as error:
        raise DataError(f"--lengths {path}: source must hold names, it is {table.column('source').type}") from error
    if len(column.dictionary) > MOST_INT16:
        raise DataError(f"--lengths {path}: {len(column.dictionary):,} different sources; at most {MOST_INT16:,} fit")
    return column.indices.to_numpy().astype(np.int16), tuple(column.dictionary.to_pylist())
