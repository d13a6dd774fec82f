"""Simulated annealing of samples over the packs of several micro-steps. About 3M moves a second at 32 ranks.

The objective is what the cluster pays: for every micro-step its number of packs times the largest pack cost, plus a
small multiple of the variance inside it, which shows the way where the largest pack is not touched. Moves: relocate one
sample, or swap two, of near length (distance in rank log-uniform) or any. Costs of samples may be net of what they
displace; only differences matter. Nothing but the four basic operations touches the floats, so that every machine
takes the same decisions.
"""

import numpy as np
from numba import njit

from hbp_prep.planning.types import Float64, Int64


@njit(cache=True)
def _random(state):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1): xorshift64*, 53 bits."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _boldness(u):  # type: ignore[no-untyped-def]
    """-log(u) by three terms of its series (Metropolis' rule, except that it is at most 3.07)."""
    z = (1.0 - u) / (1.0 + u)
    return 2.0 * z * (1.0 + z * z * (1.0 / 3.0 + z * z / 5.0))


@njit(cache=True)
def _score(pack_cost, start, stop, variance_weight):  # type: ignore[no-untyped-def]
    num_packs = stop - start
    largest = pack_cost[start]
    total = 0.0
    squares = 0.0
    for pack in range(start, stop):
        cost = pack_cost[pack]
        largest = max(largest, cost)
        total += cost
        squares += cost * cost
    return num_packs * largest + variance_weight * (squares - total * total / num_packs)


@njit(cache=True)
def _anneal(  # type: ignore[no-untyped-def]
    lengths, costs, pack_of_item, loads, pack_cost, limits, longest, starts, num_moves, hot, cold, variance_weight, seed
):
    num_items = lengths.size
    num_packs = loads.size
    state = np.array([np.uint64(seed) * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)], dtype=np.uint64)
    step_of_pack = np.empty(num_packs, dtype=np.int64)
    scores = np.empty(starts.size - 1)
    for step in range(starts.size - 1):
        step_of_pack[starts[step] : starts[step + 1]] = step
        scores[step] = _score(pack_cost, starts[step], starts[step + 1], variance_weight)
    current = scores.sum()
    best = current
    best_packs = pack_of_item.copy()
    temperature = hot
    num_halvings = 1
    while temperature > cold:
        temperature *= 0.5
        num_halvings += 1
    moves_per_temperature = max(1, num_moves // num_halvings)
    temperature = hot
    num_octaves = 1
    while (2 << num_octaves) < num_items:
        num_octaves += 1
    improved = False
    for move in range(num_moves):
        if move and move % moves_per_temperature == 0:
            temperature *= 0.5
        item = int(_random(state) * num_items)
        here = pack_of_item[item]
        other = -1
        kind = _random(state)
        if kind < 0.3:
            there = int(_random(state) * num_packs)
        else:
            if kind < 0.9:
                distance = int((1.0 + _random(state)) * (1 << int(_random(state) * num_octaves)))
                other = item + distance if _random(state) < 0.5 else item - distance
                if other < 0 or other >= num_items:
                    continue
            else:
                other = int(_random(state) * num_items)
            there = pack_of_item[other]
        if here == there:
            continue
        tokens = lengths[item]
        cost = costs[item]
        if other >= 0:
            tokens -= lengths[other]
            cost -= costs[other]
            if lengths[other] > longest[here]:
                continue
        if lengths[item] > longest[there]:
            continue
        if tokens > 0 and loads[there] + tokens > limits[there]:
            continue
        if tokens < 0 and loads[here] - tokens > limits[here]:
            continue
        step_here = step_of_pack[here]
        step_there = step_of_pack[there]
        pack_cost[here] -= cost
        pack_cost[there] += cost
        new_here = _score(pack_cost, starts[step_here], starts[step_here + 1], variance_weight)
        change = new_here - scores[step_here]
        new_there = new_here
        if step_there != step_here:
            new_there = _score(pack_cost, starts[step_there], starts[step_there + 1], variance_weight)
            change += new_there - scores[step_there]
        if change > temperature * _boldness(_random(state)):
            pack_cost[here] += cost
            pack_cost[there] -= cost
            continue
        if improved and change > 0:  # leaving the best state so far: remember it
            best_packs[:] = pack_of_item
            improved = False
        loads[here] -= tokens
        loads[there] += tokens
        pack_of_item[item] = there
        if other >= 0:
            pack_of_item[other] = here
        scores[step_here] = new_here
        scores[step_there] = new_there
        current += change
        if current < best:
            best = current
            improved = True
    if not improved:
        pack_of_item[:] = best_packs
    return best


def anneal(
    *,
    lengths: Int64,
    costs: Float64,
    pack_of_item: Int64,
    pack_cost: Float64,
    limits: Int64,
    longest: Int64,
    starts: Int64,
    num_moves: int,
    hot: float,
    cold: float,
    variance_weight: float,
    seed: int,
) -> Int64:
    """Lower the sum over micro-steps of (packs x largest pack cost) by moving items between packs.

    Args:
        lengths: int64[n], ascending, so that neighbours are of near length.
        costs: float64[n], what an item adds to its pack's cost.
        pack_of_item: int64[n], where each item is.
        pack_cost: float64[P], cost of each pack with its items.
        limits: int64[P], tokens of items that a pack may hold; a fuller one may stay so, or lose.
        longest: int64[P], the longest item that a pack may take.
        starts: int64[U + 1]; micro-step u has the packs ``starts[u] .. starts[u + 1] - 1``.
        num_moves: Moves tried.
        hot: First temperature, in units of cost; it is halved again and again.
        cold: About the last temperature.
        variance_weight: Of the sum of squares about each micro-step's mean, per unit of cost.
        seed: Of the moves.

    Returns:
        int64[n], the best assignment met. The arguments are left as they are.
    """
    moved = pack_of_item.copy()
    loads = np.bincount(moved, weights=lengths, minlength=len(limits)).astype(np.int64)
    _anneal(
        lengths,
        costs,
        moved,
        loads,
        pack_cost.copy(),
        limits,
        longest,
        starts,
        num_moves,
        hot,
        cold,
        variance_weight,
        seed,
    )
    return moved
