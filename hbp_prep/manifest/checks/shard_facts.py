"""One shard, proven from its bytes: the task that verification runs per shard, possibly in another process.

Works a record batch at a time (about 4M tokens, 40 MB); hands back a few bytes per pack and per sample, no tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.mapped_shard import MappedShard, ShardBatch
from hbp_prep.manifest.reader import check_file
from hbp_prep.manifest.schema import ShardEntry

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """What to examine, and what the manifest says of it."""

    folder: str
    entry: ShardEntry
    group: str
    pack_length: int
    vocab_size: int
    fingerprint: str
    quick: bool


@dataclass(kw_only=True)
class ShardFacts:
    """P packs of S segments, as they really are.

    Attributes:
        problems: (check, sentence).
        readable: Whether the arrays below are whole.
        pack_ids, num_tokens, num_loss_tokens, attention_cost, num_segments: int64[P].
        sample_ids: int64[S].
        seq_lengths: int32[S].
        segment_loss_tokens: int32[S]; empty in a quick verification, which reads no masks.
    """

    problems: list[tuple[str, str]] = field(default_factory=list)
    readable: bool = False
    pack_ids: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    num_tokens: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    num_loss_tokens: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    attention_cost: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    num_segments: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    sample_ids: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    seq_lengths: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    segment_loss_tokens: Array = field(default_factory=lambda: np.zeros(0, np.int32))


def examine_shard(task: ShardTask) -> ShardFacts:
    """Check one shard and take what the checks across shards need. Never raises for a bad shard: it reports it."""
    facts = ShardFacts()
    try:
        path = check_file(Path(task.folder), task.entry, checksum=not task.quick)
        shard = MappedShard(path, task.entry, group=task.group, fingerprint=task.fingerprint)
    except ManifestError as error:
        facts.problems.append(("files", str(error)))
        return facts
    parts: dict[str, list[Array]] = {}
    for batch in shard.batches:
        for name, values in _examine_batch(task, batch, facts).items():
            parts.setdefault(name, []).append(values)
    for name, arrays in parts.items():
        setattr(facts, name, np.concatenate(arrays))
    num_tokens = int(facts.num_tokens.sum())
    if num_tokens != task.entry.num_tokens:
        facts.problems.append(
            ("totals", f"{task.entry.path} has {num_tokens} tokens, the manifest says {task.entry.num_tokens}")
        )
    facts.readable = True
    return facts


def _examine_batch(task: ShardTask, batch: ShardBatch, facts: ShardFacts) -> dict[str, Array]:
    """The batch's facts, by :class:`ShardFacts` field; problems are appended to ``facts``."""
    where = _Where(task.entry.path, batch.pack_ids, facts.problems)
    segment_offsets = batch.segment_offsets - batch.segment_offsets[0]
    segments = slice(int(batch.segment_offsets[0]), int(batch.segment_offsets[-1]))
    lengths = batch.flat_seq_lengths[segments]
    real_num_tokens = np.diff(batch.token_offsets)
    where.none(np.diff(segment_offsets) == 0, lambda _: "has no samples")
    where.none(_per_pack(lengths < 1, segment_offsets) > 0, lambda _: "has a seq_length below 1")
    where.equal(_per_pack(lengths, segment_offsets), real_num_tokens, "seq_lengths add up to")
    where.equal(batch.num_tokens, real_num_tokens, "num_tokens is")
    cost = _per_pack(lengths.astype(np.int64) ** 2, segment_offsets)
    where.equal(batch.attention_cost, cost, "attention_cost is")
    where.none(
        real_num_tokens > task.pack_length,
        lambda pack: f"has {real_num_tokens[pack]} tokens; its packing group allows {task.pack_length}",
    )
    arrays = {
        "pack_ids": batch.pack_ids.astype(np.int64),
        "num_tokens": real_num_tokens,
        "num_loss_tokens": batch.num_loss_tokens.astype(np.int64),
        "attention_cost": cost,
        "num_segments": np.diff(segment_offsets),
        "sample_ids": batch.flat_sample_ids[segments].copy(),
        "seq_lengths": lengths.copy(),
    }
    adds_up = bool((lengths >= 1).all()) and np.array_equal(_per_pack(lengths, segment_offsets), real_num_tokens)
    if not task.quick:
        arrays["segment_loss_tokens"] = np.full(len(lengths), -1, np.int32)
        if adds_up:
            per_segment = _examine_tokens(task, batch, lengths, segment_offsets, where)
            arrays["segment_loss_tokens"] = per_segment
            arrays["num_loss_tokens"] = _per_pack(per_segment, segment_offsets)
            where.equal(batch.num_loss_tokens, arrays["num_loss_tokens"], "num_loss_tokens is")
    return arrays


def _examine_tokens(
    task: ShardTask, batch: ShardBatch, lengths: Array, segment_offsets: Array, where: "_Where"
) -> NDArray[np.int32]:
    """Check ids and masks of a batch whose lengths add up; loss tokens of every segment, int32[S]."""
    start, stop = int(batch.token_offsets[0]), int(batch.token_offsets[-1])
    ids = batch.flat_input_ids[start:stop]
    token_offsets = batch.token_offsets - start
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < task.vocab_size:
        position = int(np.argmax((ids < 0) | (ids >= task.vocab_size)))
        pack = int(np.searchsorted(token_offsets, position, side="right")) - 1
        where.problem("tokens", pack, f"token id {ids[position]} is not in [0, {task.vocab_size})")
    mask = batch.unpacked_mask(start, stop)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    targets_first = np.flatnonzero(mask[starts])
    if len(targets_first):
        segment = int(targets_first[0])
        pack = int(np.searchsorted(segment_offsets, segment, side="right")) - 1
        where.problem("tokens", pack, f"the first token of segment {segment - segment_offsets[pack]} is a target")
    return np.add.reduceat(mask, starts, dtype=np.int32)


@dataclass(frozen=True)
class _Where:
    """Names the place of a problem."""

    path: str
    pack_ids: Array
    problems: list[tuple[str, str]]

    def equal(self, found: Array, expected: Array, what: str) -> None:
        """A problem where ``found`` differs from ``expected``."""
        self.none(found != expected, lambda pack: f"{what} {found[pack]}, expected {expected[pack]}")

    def none(self, wrong: Array, sentence: Callable[[int], str]) -> None:
        """One problem for the first pack that is ``wrong``, and how many more there are."""
        packs = np.flatnonzero(wrong)
        if len(packs):
            more = f" ({len(packs) - 1} more packs likewise)" if len(packs) > 1 else ""
            self.problem("packs", int(packs[0]), sentence(int(packs[0])) + more)

    def problem(self, check: str, pack: int, sentence: str) -> None:
        """A problem of one pack."""
        self.problems.append((check, f"{self.path}: pack {self.pack_ids[pack]}: {sentence}"))


def _per_pack(values: Array, segment_offsets: Array) -> NDArray[np.int64]:
    """Sums of per-segment values over each pack."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
    return ends[segment_offsets[1:]] - ends[segment_offsets[:-1]]
