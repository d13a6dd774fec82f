"""Reading a prepared folder while training: which pack, for which rank, at which micro-step.

Shards are memory-mapped and opened when first needed; ``input_ids`` is a view of the file, never a copy. A reader
holds the schedule in memory (about 40 bytes per pack) and a bounded number of open shards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hbp_prep import files
from hbp_prep.errors import ManifestError
from hbp_prep.manifest.document import load_manifest, manifest_path
from hbp_prep.manifest.mapped_shard import MappedShard
from hbp_prep.manifest.paths import inside
from hbp_prep.manifest.schedule import Schedule, load_schedule
from hbp_prep.manifest.schema import FileEntry, Manifest

_MOST_OPEN_SHARDS = 64


@dataclass(frozen=True, slots=True)
class MicroStep:
    """One forward and backward pass of the whole cluster; all of its packs are of one packing group.

    Attributes:
        num_tokens, num_loss_tokens: Over all DP ranks.
        predicted_seconds: Of its slowest DP rank, by the manifest's cost model.
    """

    step: int
    micro_step: int
    group: str
    dp_size: int
    sp_degree: int
    gc_layers: int
    num_tokens: int
    num_loss_tokens: int
    phase: str
    epoch: int
    predicted_seconds: float


@dataclass(frozen=True, slots=True)
class Pack:
    """What one DP rank runs in one micro-step: n tokens of s segments (samples), not padded.

    Attributes:
        pack_id: -1 for an empty pack (n = s = 0, no loss), which only a replanned schedule holds.
        input_ids: int32[n], a read-only view of the memory-mapped shard.
        loss_mask: bool[n], true where the token is a target; never on a segment's first token.
        position_ids: int32[n], from 0 in every segment.
        seq_lengths: int32[s].
        cu_seqlens: int32[s + 1], where segments begin and end; attention stays inside a segment.
        sample_ids: int64[s], rows of ``samples.arrow``.
    """

    pack_id: int
    group: str
    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    position_ids: NDArray[np.int32]
    seq_lengths: NDArray[np.int32]
    cu_seqlens: NDArray[np.int32]
    sample_ids: NDArray[np.int64]


class ManifestReader:
    """A prepared folder, checked when opened: manifest, presence and sizes of all files, shape of the schedule.

    Args:
        folder_or_manifest: The folder, or its manifest.json.
        verify_checksums: Also hash every file (about 1 GB a second); ``hbp_prep.manifest.verify`` proves far more.

    Raises:
        ManifestError: the folder is unfinished, of another format, incomplete or damaged.
    """

    def __init__(self, folder_or_manifest: Path | str, *, verify_checksums: bool = False) -> None:
        self.manifest: Manifest = load_manifest(folder_or_manifest)
        self.folder = manifest_path(folder_or_manifest).parent
        for entry in self.manifest.files():
            check_file(self.folder, entry, checksum=verify_checksums)
        self._schedule: Schedule = load_schedule(self.folder, self.manifest)
        self._open_shard = lru_cache(maxsize=_MOST_OPEN_SHARDS)(self._map_shard)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run, over all epochs."""
        return self.manifest.schedule.num_steps

    def micro_steps(self, step: int) -> Sequence[MicroStep]:
        """The micro-steps of an optimizer step, in order.

        Raises:
            IndexError: there is no such step.
        """
        return [self._micro_step(index) for index in self._schedule.micro_steps_of(step)]

    def step_loss_tokens(self, step: int) -> int:
        """Loss tokens of an optimizer step over all its micro-steps and ranks: the denominator of its loss."""
        return sum(int(self._schedule.num_loss_tokens[index]) for index in self._schedule.micro_steps_of(step))

    def pack(self, step: int, micro_step: int, dp_rank: int) -> Pack:
        """The pack of one DP rank in one micro-step.

        Raises:
            IndexError: no such step, micro-step or DP rank.
            ManifestError: the shard is damaged, or does not hold that pack where the schedule says.
        """
        indices = self._schedule.micro_steps_of(step)
        if not 0 <= micro_step < len(indices):
            raise IndexError(f"step {step} has micro-steps 0 to {len(indices) - 1}, not {micro_step}")
        index = indices[micro_step]
        group = int(self._schedule.group[index])
        pack_id, shard, row = self._schedule.assignment(index, dp_rank)
        if pack_id == -1 and self.manifest.schedule.replanned:
            return _empty_pack(self.manifest.groups[group].name)
        return self._read(group, shard, row, pack_id)

    def packs_of_rank(self, rank: int, *, first_step: int = 0) -> Iterator[tuple[MicroStep, Pack]]:
        """What global rank ``rank`` runs, in order, from ``first_step`` on. SP peers get the same pack.

        Raises:
            IndexError: no such rank or step.
        """
        if not 0 <= rank < self.manifest.world_size:
            raise IndexError(f"rank {rank} is not in a world of {self.manifest.world_size}")
        for step in range(first_step, self.num_steps):
            for micro_step in self.micro_steps(step):
                yield micro_step, self.pack(step, micro_step.micro_step, rank // micro_step.sp_degree)

    def all_packs(self) -> Iterator[Pack]:
        """Every pack once, in pack-id order: one epoch, without the schedule."""
        for index, group in enumerate(self.manifest.groups):
            for shard, entry in enumerate(group.shards):
                for row in range(entry.rows):
                    yield self._read(index, shard, row, None)

    def _micro_step(self, index: int) -> MicroStep:
        schedule = self._schedule
        group = self.manifest.groups[int(schedule.group[index])]
        return MicroStep(
            step=int(schedule.step[index]),
            micro_step=int(schedule.micro_step[index]),
            group=group.name,
            dp_size=group.dp_size,
            sp_degree=group.sp_degree,
            gc_layers=group.gc_layers,
            num_tokens=int(schedule.num_tokens[index]),
            num_loss_tokens=int(schedule.num_loss_tokens[index]),
            phase=schedule.phase_names[int(schedule.phase[index])],
            epoch=int(schedule.epoch[index]),
            predicted_seconds=float(schedule.predicted_seconds[index]),
        )

    def _map_shard(self, group: int, shard: int) -> MappedShard:
        entry = self.manifest.groups[group]
        if not 0 <= shard < len(entry.shards):
            raise ManifestError(
                f"{self.folder}: the schedule names shard {shard} of packing group {entry.name}, "
                f"which has {len(entry.shards)}; it was damaged, run hbp-prep again"
            )
        path = inside(self.folder, entry.shards[shard].path)
        return MappedShard(path, entry.shards[shard], group=entry.name, fingerprint=self.manifest.fingerprint)

    def _read(self, group: int, shard: int, row: int, expected_pack_id: int | None) -> Pack:
        mapped = self._open_shard(group, shard)
        batch, row_in_batch = mapped.locate(row)
        pack_id = int(batch.pack_ids[row_in_batch])
        if expected_pack_id is not None and pack_id != expected_pack_id:
            raise ManifestError(f"{mapped.path}: row {row} is pack {pack_id}; the schedule says {expected_pack_id}")
        seq_lengths = batch.seq_lengths(row_in_batch)
        input_ids = batch.input_ids(row_in_batch)
        loss_mask = batch.loss_mask(row_in_batch)
        cu_seqlens = np.zeros(len(seq_lengths) + 1, np.int32)
        np.cumsum(seq_lengths, out=cu_seqlens[1:])
        if (seq_lengths < 1).any() or cu_seqlens[-1] != len(input_ids):
            raise ManifestError(f"{mapped.path}: pack {pack_id}: its seq_lengths do not add up to its tokens")
        position_ids = np.arange(len(input_ids), dtype=np.int32)
        position_ids -= np.repeat(cu_seqlens[:-1], seq_lengths)
        return Pack(
            pack_id=pack_id,
            group=self.manifest.groups[group].name,
            input_ids=input_ids,
            loss_mask=loss_mask,
            position_ids=position_ids,
            seq_lengths=seq_lengths,
            cu_seqlens=cu_seqlens,
            sample_ids=batch.sample_ids(row_in_batch),
        )


def check_file(folder: Path, entry: FileEntry, *, checksum: bool) -> Path:
    """The path of ``entry``, present, of the right size and, if asked, of the right checksum.

    Raises:
        ManifestError: it is not.
    """
    path = inside(folder, entry.path)
    try:
        num_bytes = path.stat().st_size
    except OSError as error:
        raise ManifestError(f"{path} is missing; copy the whole folder, or run hbp-prep again") from error
    if num_bytes != entry.bytes:
        raise ManifestError(f"{path} has {num_bytes} bytes, the manifest says {entry.bytes}; it was cut or replaced")
    if checksum and files.sha256_file(path) != entry.sha256:
        raise ManifestError(f"{path} does not match its checksum; it was damaged or replaced")
    return path


def _empty_pack(group: str) -> Pack:
    nothing = np.zeros(0, np.int32)
    return Pack(
        pack_id=-1,
        group=group,
        input_ids=nothing,
        loss_mask=np.zeros(0, np.bool_),
        position_ids=nothing,
        seq_lengths=nothing,
        cu_seqlens=np.zeros(1, np.int32),
        sample_ids=np.zeros(0, np.int64),
    )
