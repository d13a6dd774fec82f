"""Small prepared folders from made-up tokens: real planner, token store, shard writer; every sample known by heart."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hbp_prep import files
from hbp_prep.corpus.types import Corpus, CorpusFile, SourceSpec
from hbp_prep.cost.model import CostModel
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.manifest.parts import SPLIT, TRUNCATED, part_name
from hbp_prep.manifest.schema import Manifest
from hbp_prep.planning.persist import load_plan, save_plan
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, PackingGroup, PlanSpec, Samples
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.sharding.finish import finish
from hbp_prep.sharding.shards import write_shards
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.lengths import num_covered, split_row
from hbp_prep.tokenization.rejected import RejectedRow, write_rejected
from hbp_prep.tokenization.store import UnitWriter, unit_path
from hbp_prep.tokenization.table import SampleTable

VOCAB_SIZE = 1000
FINGERPRINT = "0123456789abcdef" * 2
SOURCES = ("chats", "books")
FILES = ("/data/a.jsonl", "/data/b.jsonl", "/data/long.parquet")
SOURCE_OF_FILE = (0, 0, 1)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the stages before sharding leave, and the truth to compare with.

    ``input_ids[i]`` and ``loss_masks[i]`` are sample i's, cut; ``original_ids[i]`` may be ``None``.
    """

    folder: Path
    plan_folder: Path
    store_folder: Path
    table_path: Path
    rejected_path: Path
    rows_read: int
    input_ids: list[np.ndarray]
    loss_masks: list[np.ndarray]
    original_ids: list[str | None]


def prepare(
    folder: Path,
    *,
    seed: int = 0,
    num_rows: int = 60,
    longest: int = 200,
    world_size: int = 4,
    pack_lengths: tuple[int, ...] = (64, 256),
    epochs: int = 1,
    repeats: int = 1,
    split: bool = False,
) -> Work:
    """Random units of ``num_rows`` rows in all; some rejected, some truncated or split, each used ``repeats`` times."""
    rng = np.random.default_rng(seed)
    longest = min(longest, pack_lengths[-1])
    store_folder, rejected_path = folder / "tokens", folder / "rejected.arrow"
    names = [name for name in SampleTable.__dataclass_fields__ if name != "lost_tokens"]
    columns: dict[str, list[int]] = {name: [] for name in names}
    input_ids, loss_masks, original_ids = [], [], []
    rejected: list[tuple[int, RejectedRow]] = []
    num_lost = 0
    for unit, rows in enumerate(np.array_split(np.arange(num_rows), len(FILES))):
        writer = UnitWriter()
        for index, row in enumerate(rows.tolist()):
            if rng.random() < 0.1:
                writer.add(row, index, None, RowRejected(Reason.BAD_ROLE, "role 'boss' is not known"))
                rejected.append((unit, RejectedRow(row, Reason.BAD_ROLE, "role 'boss' is not known")))
                continue
            num_stored = int(np.clip(rng.lognormal(3, 1), 2, longest + 20))
            ids = rng.integers(0, VOCAB_SIZE, num_stored).astype(np.int32)
            mask = rng.random(num_stored) < 0.4
            mask[0], mask[1] = False, True
            if split and row % 2:
                mask[1:] = True  # one long turn, that must be cut inside
            original_id = f"row-{row}" if rng.random() < 0.5 else None
            writer.add(row, index, original_id, EncodedSample(input_ids=ids, loss_mask=mask))
            ranges = split_row(mask, longest) if split else [(0, min(num_stored, longest))]
            parts = [part for part in ranges if mask[part[0] + 1 : part[1]].any()]
            num_lost += repeats * (num_stored - num_covered(parts))
            for first, stop in parts * repeats:
                part_mask = mask[first:stop].copy()
                part_mask[0] = False
                is_whole = stop - first == num_stored
                values = (unit, index, first, SOURCE_OF_FILE[unit], unit, row, stop - first, int(part_mask.sum()))
                for name, value in zip(columns, (*values, 0 if is_whole else num_stored), strict=True):
                    columns[name].append(value)
                input_ids.append(ids[first:stop])
                loss_masks.append(part_mask)
                original_ids.append(part_name(original_id, first, stop) if split and not is_whole else original_id)
        writer.write(unit_path(store_folder, unit), FINGERPRINT)
    types = {"source": np.int16, "row": np.int64}
    arrays = {name: np.array(values, types.get(name, np.int32)) for name, values in columns.items()}
    table = SampleTable(**arrays, lost_tokens={SPLIT if split else TRUNCATED: num_lost})
    table.save(folder / "table.arrow")
    with write_rejected(rejected_path, corpus()) as lines:
        for unit, row in rejected:
            lines.append(file=unit, source=SOURCE_OF_FILE[unit], rows=[row])
    save_plan(plan_for(table, world_size, pack_lengths, epochs, seed), folder / "plan")
    return Work(
        folder=folder,
        plan_folder=folder / "plan",
        store_folder=store_folder,
        table_path=folder / "table.arrow",
        rejected_path=rejected_path,
        rows_read=num_rows,
        input_ids=input_ids,
        loss_masks=loss_masks,
        original_ids=original_ids,
    )


def corpus() -> Corpus:
    """The corpus that the made-up rows come from."""
    sources = tuple(SourceSpec(name=name, paths=()) for name in SOURCES)
    described = {"file_format": "jsonl", "row_format": "messages", "size_bytes": 1, "sha256": "0", "num_rows": 1}
    paths = zip(SOURCE_OF_FILE, FILES, strict=True)
    return Corpus(
        sources=sources,
        files=tuple(CorpusFile(source=source, path=path, **described) for source, path in paths),
        units=(),
    )


def cost_model() -> CostModel:
    """Any preset."""
    return CostModel.build(next(iter(MODELS.values())), next(iter(HARDWARE.values())), gpus_per_node=8)


def plan_for(table: SampleTable, world_size: int, pack_lengths: tuple[int, ...], epochs: int, seed: int) -> Any:
    """A real plan; the longest packing group has SP degree 2 where there are several."""
    groups = tuple(
        PackingGroup(
            name=f"L{length}", pack_length=length, sp_degree=2 if index and index == len(pack_lengths) - 1 else 1
        )
        for index, length in enumerate(pack_lengths)
    )
    spec = PlanSpec(
        groups=groups,
        world_size=world_size,
        strategy="bfs",
        order="stratified",
        micro_steps_per_step=3,
        curriculum=Curriculum(kind="two_phase", first_phase_fraction=0.3) if len(groups) > 1 else Curriculum(),
        epochs=epochs,
        seed=seed,
    )
    samples = Samples(
        num_tokens=table.num_tokens,
        num_loss_tokens=table.num_loss_tokens,
        source=table.source,
        source_names=SOURCES,
    )
    return make_plan(spec, samples, cost_model())


def write(out: Path, work: Work, *, shard_tokens: int = 600, map_tasks: Callable[..., Any] = map) -> Manifest:
    """Sharding, as the pipeline runs it."""
    shards = write_shards(
        out,
        plan_folder=work.plan_folder,
        store_folder=work.store_folder,
        table_path=work.table_path,
        fingerprint=FINGERPRINT,
        shard_tokens=shard_tokens,
        map_tasks=map_tasks,
    )
    cost = cost_model().to_dict()
    return finish(
        out,
        plan=load_plan(work.plan_folder),
        table=SampleTable.load(work.table_path),
        store_folder=work.store_folder,
        file_names=FILES,
        source_names=SOURCES,
        rejected_path=work.rejected_path,
        rows_read=work.rows_read,
        shards=shards,
        tokenizer={"name": "made-up", "vocab_size": VOCAB_SIZE},
        gpus_per_node=8,
        model=cost["model"],
        cost_model=cost,
        fingerprint=FINGERPRINT,
        created_by={"hbp-prep": "test"},
    )


def contents(out: Path) -> dict[str, bytes]:
    """Every file of a folder as {relative path: bytes}."""
    named = {path.relative_to(out).as_posix(): path for path in sorted(out.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith(".work/")}


class Stopped(BaseException):
    """Stands for a killed process."""


@contextmanager
def stopped_at_commit(number: int) -> Iterator[None]:
    """Inside, the process "dies" at its commit ``number`` (from 0), before the rename; temporary files stay."""
    original, count = files.commit, 0

    def commit(temp: Path, final: Path) -> None:
        nonlocal count
        count += 1
        if count > number:
            raise Stopped
        original(temp, final)

    files.commit = commit
    try:
        yield
    finally:
        files.commit = original
