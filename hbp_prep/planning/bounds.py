"""What no plan for these samples, packing groups and world size can undercut. O(N)."""

from typing import Any

import numpy as np

from hbp_prep.planning.types import Packs, PlanSpec, Samples


def plan_bounds(spec: PlanSpec, samples: Samples, packs: Packs) -> dict[str, Any]:
    """Lower bounds, beside which the plan's own figures are read.

    - ``num_micro_steps``: all tokens / the largest token capacity of one micro-step, rounded up; beside it
      ``num_micro_steps_planned`` (of one epoch).
    - per packing group ``num_packs`` (its tokens / its length, rounded up) beside ``num_packs_planned``.
    - ``abr``, ``wabr``: see :func:`imbalance_bounds`. ``imbalance_kind`` says in words which bound it is.
    """
    lengths = np.array([group.pack_length for group in spec.groups], dtype=np.int64)
    num_tokens = int(samples.num_tokens.sum(dtype=np.int64))
    largest = max(spec.dp_size(index) * group.pack_length for index, group in enumerate(spec.groups))
    tokens = np.bincount(packs.group, weights=packs.num_tokens, minlength=len(lengths)).astype(np.int64)
    planned = np.bincount(packs.group, minlength=len(lengths))
    num_micro_steps = sum(-(-int(planned[index]) // spec.dp_size(index)) for index in range(len(lengths)))
    abr, wabr = imbalance_bounds(spec, samples, num_micro_steps)
    return {
        "num_micro_steps": -(-num_tokens // largest),
        "num_micro_steps_planned": num_micro_steps,
        "packing_groups": [
            {"name": group.name, "num_packs": int(-(-tokens[i] // lengths[i])), "num_packs_planned": int(planned[i])}
            for i, group in enumerate(spec.groups)
        ],
        "abr": abr,
        "wabr": wabr,
        "imbalance_kind": "of the one micro-step that holds the longest sample; every other one is taken as perfect",
    }


def imbalance_bounds(spec: PlanSpec, samples: Samples, num_micro_steps: int) -> tuple[float, float]:
    """Lower bounds of ABR (over ``num_micro_steps``) and wABR, from the micro-step that holds the longest sample.

    Its largest attention cost is at least a^2, a being the longest sample's length. Another pack of that micro-step,
    led by a sample of length b, costs at most b^2 + r * min(r, b), r = pack_length - b: the samples that share the room
    r are no longer than b. So the loss is at least the sum of max(0, a^2 - cost) over the next longest leaders. The
    packing group is the one (of those that can hold the sample) for which this is least.

    wABR is W / (W + M), W being the sum over micro-steps of largest - mean cost, and M that of mean costs: W is at
    least this micro-step's, loss / its DP size, and M at most all attention work / the smallest DP size.
    """
    total = float(np.square(samples.num_tokens.astype(np.float64)).sum())
    fewest_ranks = min(spec.dp_size(index) for index in range(len(spec.groups)))
    most_ranks = max(spec.dp_size(index) for index in range(len(spec.groups)))
    num_longest = min(most_ranks, len(samples))
    longest = np.sort(np.partition(samples.num_tokens, -num_longest)[-num_longest:])[::-1].astype(np.float64)
    waits, shares = [], []
    for index, group in enumerate(spec.groups):
        if group.pack_length < longest[0]:
            continue
        dp_size = spec.dp_size(index)
        leaders = longest[longest <= group.pack_length][1:dp_size]
        room = group.pack_length - leaders
        at_most = np.minimum(leaders**2 + room * np.minimum(room, leaders), longest[0] ** 2)
        loss = float((longest[0] ** 2 - at_most).sum())
        waits.append(loss / dp_size)
        shares.append(loss / (dp_size * longest[0] ** 2))
    return min(shares) / num_micro_steps, min(waits) / (min(waits) + total / fewest_ranks)
