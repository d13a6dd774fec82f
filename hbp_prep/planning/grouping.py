"""GroupData: every sample belongs to the shortest packing group that it fits. O(n log groups)."""

from collections.abc import Sequence

import numpy as np

from hbp_prep.planning.types import Int16, Int32, PackingGroup


def group_of_samples(num_tokens: Int32, groups: Sequence[PackingGroup]) -> Int16:
    """The packing group of each sample: the first whose length is at least the sample's.

    Args:
        num_tokens: int32[N], each at most the longest packing length.
        groups: Ascending by pack_length.

    Returns:
        int16[N], indices into ``groups``.
    """
    pack_lengths = np.array([group.pack_length for group in groups], dtype=np.int64)
    return np.searchsorted(pack_lengths, num_tokens, side="left").astype(np.int16)
