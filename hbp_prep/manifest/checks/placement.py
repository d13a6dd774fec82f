"""Where every sample and every pack lies, gathered from the shards: 12 bytes per sample, 52 per pack."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.shard_facts import ShardFacts

Array = NDArray[Any]


@dataclass(kw_only=True)
class PackTable:
    """All packs; pack_id is the position.

    Attributes:
        group, shard, row: int32[P], where a pack lies; ``shard`` counts within its packing group.
        num_tokens, num_loss_tokens, attention_cost, num_segments: int64[P].
    """

    group: Array
    shard: Array
    row: Array
    num_tokens: Array
    num_loss_tokens: Array
    attention_cost: Array
    num_segments: Array

    def __len__(self) -> int:
        return len(self.group)


class Placement:
    """Built shard by shard, in the manifest's order; pack ids must count up from 0 without gaps.

    Attributes:
        pack_of: int32[N], -1 where no pack holds the sample.
        num_tokens, num_loss_tokens: int32[N], of the sample's segment.
    """

    def __init__(self, num_samples: int) -> None:
        self.pack_of = np.full(num_samples, -1, np.int32)
        self.num_tokens = np.zeros(num_samples, np.int32)
        self.num_loss_tokens = np.zeros(num_samples, np.int32)
        self._parts: dict[str, list[Array]] = {}
        self._num_packs = 0

    def add(self, facts: ShardFacts, path: str, group: int, shard: int, findings: Findings) -> None:
        """Take in one shard."""
        num_packs = len(facts.pack_ids)
        expected = np.arange(self._num_packs, self._num_packs + num_packs)
        wrong = np.flatnonzero(facts.pack_ids != expected)
        if len(wrong):
            row = int(wrong[0])
            findings.add("packs", f"{path}: row {row} is pack {facts.pack_ids[row]}, expected {expected[row]}")
        self._place_samples(facts, path, np.repeat(expected, facts.num_segments), findings)
        part = {"group": np.full(num_packs, group), "shard": np.full(num_packs, shard), "row": np.arange(num_packs)}
        for name in ("num_tokens", "num_loss_tokens", "attention_cost", "num_segments"):
            part[name] = getattr(facts, name)
        for name, values in part.items():
            self._parts.setdefault(name, []).append(values)
        self._num_packs += num_packs

    def packs(self) -> PackTable:
        """All packs, once every shard is in."""
        names = ("group", "shard", "row", "num_tokens", "num_loss_tokens", "attention_cost", "num_segments")
        nothing = [np.zeros(0, np.int64)]
        return PackTable(**{name: np.concatenate(self._parts.get(name, nothing)) for name in names})

    def check_all_placed(self, findings: Findings) -> None:
        """Every sample is in a pack."""
        missing = np.flatnonzero(self.pack_of < 0)
        if len(missing):
            findings.add("samples", f"{len(missing)} samples are in no pack, the first is sample {missing[0]}")

    def _place_samples(self, facts: ShardFacts, path: str, packs: Array, findings: Findings) -> None:
        ids = facts.sample_ids
        known = (ids >= 0) & (ids < len(self.pack_of))
        if not known.all():
            first = int(np.argmin(known))
            findings.add(
                "samples",
                f"{path}: pack {packs[first]} holds sample {ids[first]}; samples.arrow has {len(self.pack_of)}",
            )
        ids, packs, lengths = ids[known], packs[known], facts.seq_lengths[known]
        order = np.argsort(ids, kind="stable")
        again = np.zeros(len(ids), np.bool_)
        again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
        again |= self.pack_of[ids] >= 0
        if again.any():
            second = int(np.argmax(again))
            findings.add(
                "samples", f"{path}: sample {ids[second]} is in pack {packs[second]} although a pack before it has it"
            )
        self.pack_of[ids] = packs
        self.num_tokens[ids] = lengths
        if len(facts.segment_loss_tokens):
            self.num_loss_tokens[ids] = facts.segment_loss_tokens[known]
