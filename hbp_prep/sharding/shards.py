"""From plan and token store to data shards: one independent task per shard file.

Cost: about 20 bytes of memory per token of a record batch (4M tokens: 80 MB) and the pages of the token store that 1M
tokens touch; 30M to 40M tokens a second and core. A shard holds consecutive packs of one packing group; where shards
begin and end depends on the plan and on ``shard_tokens`` alone, so the bytes are the same whatever runs the tasks.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hbp_prep import files
from hbp_prep.errors import DataError
from hbp_prep.manifest.paths import check_relative
from hbp_prep.manifest.schema import MANIFEST_NAME, SHARDS_FOLDER, ShardEntry
from hbp_prep.manifest.writer import BATCH_TOKENS, PackBatch, ShardWriter
from hbp_prep.planning.persist import load_plan
from hbp_prep.planning.types import Int64, Packs, Plan
from hbp_prep.progress import NoProgress, Progress, track
from hbp_prep.sharding.runs import cut_runs
from hbp_prep.tokenization.store import TokenStore
from hbp_prep.tokenization.table import SampleTable

SHARD_TOKENS = 1 << 24
RECORDS_FOLDER = ".work/shards"
_RELEASE_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to write: packs ``first_pack`` to ``stop_pack - 1`` of one packing group."""

    out: str
    path: str
    plan_folder: str
    store_folder: str
    table_path: str
    fingerprint: str
    group: str
    first_pack: int
    stop_pack: int


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A shard on disk: the index of its packing group, and its line of the manifest."""

    group: int
    entry: ShardEntry


MapTasks = Callable[[Callable[[ShardTask], ShardEntry], Iterable[ShardTask]], Iterator[ShardEntry]]


def write_shards(
    out: Path,
    *,
    plan_folder: Path,
    store_folder: Path,
    table_path: Path,
    fingerprint: str,
    shard_tokens: int = SHARD_TOKENS,
    map_tasks: MapTasks = map,
    progress: Progress | None = None,
) -> list[WrittenShard]:
    """Write every shard of a plan under ``out/shards``, keeping those that an interrupted run of the same plan wrote.

    The manifest of an earlier run is removed first (the folder is unfinished from now on), and so is every file in
    ``shards/`` that is not of this plan.

    Args:
        fingerprint: Of the whole run; a shard of another fingerprint is written again.
        shard_tokens: Tokens that a shard file holds at most (one longer pack has a file of its own).
        map_tasks: Like the builtin ``map``; an engine's ``map`` writes shards in parallel.

    Returns:
        The shards in the manifest's order: packing groups ascending, pack ids ascending.

    Raises:
        DataError: the token store does not hold what plan and sample table say, or the disk is full.
    """
    plan = load_plan(plan_folder)
    places = _places(plan, shard_tokens)
    tasks = [
        ShardTask(
            out=str(out),
            path=path,
            plan_folder=str(plan_folder),
            store_folder=str(store_folder),
            table_path=str(table_path),
            fingerprint=fingerprint,
            group=plan.spec.groups[group].name,
            first_pack=first,
            stop_pack=stop,
        )
        for group, path, first, stop in places
    ]
    (out / MANIFEST_NAME).unlink(missing_ok=True)
    _remove_strays(out, {task.path for task in tasks})
    written = []
    progress = progress or NoProgress()
    with track(progress, "shards", int(plan.packs.num_tokens.sum(dtype=np.int64)), "tokens"):
        for (group, *_), entry in zip(places, map_tasks(write_shard, tasks), strict=True):
            written.append(WrittenShard(group=group, entry=entry))
            progress.advance(entry.num_tokens)
    return written


def write_shard(task: ShardTask) -> ShardEntry:
    """Write one shard, or keep the one that is there when this very run wrote it."""
    plan = load_plan(Path(task.plan_folder))
    kept = _kept(task)
    if kept is not None:
        return kept
    table = SampleTable.load(Path(task.table_path))
    store = TokenStore(Path(task.store_folder))
    num_tokens = plan.packs.num_tokens[task.first_pack : task.stop_pack]
    runs = cut_runs(num_tokens, BATCH_TOKENS)
    gather = _Gather(plan.packs, table, store, max(int(num_tokens[start:stop].sum()) for start, stop in runs))
    with ShardWriter(Path(task.out) / task.path, group=task.group, fingerprint=task.fingerprint) as writer:
        for start, stop in runs:
            writer.write(gather.packs(task.first_pack + start, task.first_pack + stop))
    entry = ShardEntry(
        path=task.path,
        rows=writer.written.rows,
        bytes=writer.written.bytes,
        sha256=writer.written.sha256,
        num_tokens=int(num_tokens.sum(dtype=np.int64)),
    )
    files.write_json(_record(task), {"fingerprint": task.fingerprint, "entry": asdict(entry)})
    return entry


class _Gather:
    """Collects the tokens of packs, sample by sample, into one buffer that every batch uses again."""

    def __init__(self, packs: Packs, table: SampleTable, store: TokenStore, most_tokens: int) -> None:
        self._packs = packs
        self._table = table
        self._store = store
        self._input_ids = np.empty(most_tokens, np.int32)
        self._loss_mask = np.empty(most_tokens, np.bool_)

    def packs(self, first: int, stop: int) -> PackBatch:
        """Packs ``first`` to ``stop - 1``; valid until the next call.

        Raises:
            DataError: a sample's tokens or loss tokens are not as many as plan and sample table say.
        """
        offsets = self._packs.offsets[first : stop + 1]
        sample_ids = np.ascontiguousarray(self._packs.sample_ids[offsets[0] : offsets[-1]])
        seq_lengths = self._table.num_tokens[sample_ids]
        stops = np.cumsum(seq_lengths, dtype=np.int64)
        self._gather(sample_ids, stops - seq_lengths, stops)
        num_tokens = int(stops[-1])
        batch = PackBatch(
            pack_ids=np.arange(first, stop),
            segment_offsets=offsets - offsets[0],
            sample_ids=sample_ids,
            seq_lengths=seq_lengths,
            input_ids=self._input_ids[:num_tokens],
            loss_mask=self._loss_mask[:num_tokens],
        )
        self._check(batch, first, stop)
        return batch

    def _gather(self, sample_ids: Int64, begins: Int64, ends: Int64) -> None:
        """Copy every sample to its place, in the order in which the store holds them: its pages are read once."""
        units, indices = self._table.unit[sample_ids], self._table.index[sample_ids]
        order = np.lexsort((indices, units))
        first_tokens = self._table.first_token[sample_ids]
        places = zip(*(column[order].tolist() for column in (units, indices, first_tokens, begins, ends)), strict=True)
        num_unreleased = 0
        for unit, index, first, begin, end in places:
            self._copy(unit, index, first, begin, end)
            num_unreleased += end - begin
            if num_unreleased >= _RELEASE_TOKENS:
                self._store.release()
                num_unreleased = 0
        self._store.release()

    def _copy(self, unit: int, index: int, first: int, begin: int, end: int) -> None:
        """Tokens of a stored row, from its token ``first`` on, to ``begin`` to ``end - 1`` of the buffer."""
        tokens = self._store.tokens(unit, index)
        mask = self._store.mask(unit, index)
        stop = first + end - begin
        if not len(tokens) == len(mask) >= stop:
            raise DataError(
                f"token store: sample {index} of unit {unit} has {len(tokens)} tokens, the sample table says {stop}; "
                "the .work folder was damaged, run again with --overwrite"
            )
        self._input_ids[begin:end] = tokens[first:stop]
        self._loss_mask[begin:end] = mask[first:stop]
        self._loss_mask[begin] = False  # a part may begin with a token that was a target of the part before

    def _check(self, batch: PackBatch, first: int, stop: int) -> None:
        """Tokens and loss tokens of the batch are those that the plan balanced."""
        num_tokens = int(self._packs.num_tokens[first:stop].sum(dtype=np.int64))
        num_loss_tokens = int(self._packs.num_loss_tokens[first:stop].sum(dtype=np.int64))
        found = (len(batch.input_ids), int(np.count_nonzero(batch.loss_mask)))
        if found != (num_tokens, num_loss_tokens):
            raise DataError(
                f"packs {first} to {stop - 1} have {found[0]} tokens and {found[1]} loss tokens in the token store, "
                f"{num_tokens} and {num_loss_tokens} in the plan; .work was damaged, run again with --overwrite"
            )


def _places(plan: Plan, shard_tokens: int) -> list[tuple[int, str, int, int]]:
    """``(group, path, first_pack, stop_pack)`` of every shard."""
    places = []
    for index, group in enumerate(plan.spec.groups):
        first, stop = np.searchsorted(plan.packs.group, [index, index + 1]).tolist()
        for part, (begin, end) in enumerate(cut_runs(plan.packs.num_tokens[first:stop], shard_tokens)):
            path = check_relative(f"{SHARDS_FOLDER}/{group.name}/part-{part:05d}.arrow", "shard")
            places.append((index, path, first + begin, first + end))
    return places


def _record(task: ShardTask) -> Path:
    """Where it is noted that this shard was written, and with which checksum."""
    return Path(task.out) / RECORDS_FOLDER / f"{task.group}-{Path(task.path).stem}.json"


def _kept(task: ShardTask) -> ShardEntry | None:
    """The shard that is there already, when its record says that this run wrote these very bytes; else ``None``."""
    path = Path(task.out) / task.path
    try:
        record = json.loads(_record(task).read_bytes())
        entry = ShardEntry(**record["entry"])
        is_same = record["fingerprint"] == task.fingerprint and entry.path == task.path
        return entry if is_same and files.sha256_file(path) == entry.sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no record, or no shard: it is written (again)


def _remove_strays(out: Path, wanted: set[str]) -> None:
    """Remove files below ``shards/`` that this plan does not write, temporary ones included, and empty folders."""
    for path in sorted((out / SHARDS_FOLDER).rglob("*"), reverse=True):
        if path.is_symlink() or path.is_file():
            if path.is_symlink() or path.relative_to(out).as_posix() not in wanted:
                path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()
