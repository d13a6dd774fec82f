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

RELOCATE, SWAP_NEAR = 0.3, 0.6
"""Shares of the moves; the rest swaps any two."""


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
def _propose(state, pack_of_item, num_packs, num_octaves):  # type: ignore[no-untyped-def]
    """A random move: (item, its new pack, the item that takes its place or -1); the new pack is -1 where none came."""
    num_items = pack_of_item.size
    item = int(_random(state) * num_items)
    kind = _random(state)
    if kind < RELOCATE:
        return item, int(_random(state) * num_packs), -1
    if kind < RELOCATE + SWAP_NEAR:
        distance = int((1.0 + _random(state)) * (1 << int(_random(state) * num_octaves)))
        other = item + distance if _random(state) < 0.5 else item - distance
        if other < 0 or other >= num_items:
            return item, -1, -1
    else:
        other = int(_random(state) * num_items)
    return item, pack_of_item[other], other


@njit(cache=True)
def _fits(lengths, loads, limits, longest, item, here, there, other):  # type: ignore[no-untyped-def]
    """Whether both packs may hold what the move gives them."""
    tokens = lengths[item]
    if lengths[item] > longest[there]:
        return False
    if other >= 0:
        if lengths[other] > longest[here]:
            return False
        tokens -= lengths[other]
    if tokens > 0:
        return loads[there] + tokens <= limits[there]
    return tokens == 0 or loads[here] - tokens <= limits[here]


@njit(cache=True)
def _num_halvings(hot, cold):  # type: ignore[no-untyped-def]
    number = 0
    while hot > cold:
        hot *= 0.5
        number += 1
    return number


@njit(cache=True)
def _anneal(  # type: ignore[no-untyped-def]
    lengths, costs, pack_of_item, loads, pack_cost, limits, longest, starts, num_moves, hot, cold, variance_weight, seed
):
    state = np.array([np.uint64(seed) * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)], dtype=np.uint64)
    step_of_pack = np.empty(loads.size, dtype=np.int64)
    scores = np.empty(starts.size - 1)
    for step in range(starts.size - 1):
        step_of_pack[starts[step] : starts[step + 1]] = step
        scores[step] = _score(pack_cost, starts[step], starts[step + 1], variance_weight)
    best = current = scores.sum()
    best_packs = pack_of_item.copy()
    at_best = False  # whether the present state is the best, not copied yet
    temperature = hot
    moves_per_temperature = max(1, num_moves // (_num_halvings(hot, cold) + 1))
    num_octaves = max(1, _num_halvings(lengths.size, 2))
    for move in range(num_moves):
        if move and move % moves_per_temperature == 0:
            temperature *= 0.5
        item, there, other = _propose(state, pack_of_item, loads.size, num_octaves)
        here = pack_of_item[item]
        if there < 0 or there == here or not _fits(lengths, loads, limits, longest, item, here, there, other):
            continue
        cost = costs[item] - (costs[other] if other >= 0 else 0.0)
        pack_cost[here] -= cost
        pack_cost[there] += cost
        u, v = step_of_pack[here], step_of_pack[there]
        score_u = _score(pack_cost, starts[u], starts[u + 1], variance_weight)
        score_v = score_u if u == v else _score(pack_cost, starts[v], starts[v + 1], variance_weight)
        change = score_u - scores[u] if u == v else score_u - scores[u] + score_v - scores[v]
        if change > temperature * _boldness(_random(state)):
            pack_cost[here] += cost
            pack_cost[there] -= cost
            continue
        if at_best and change > 0:
            best_packs[:] = pack_of_item
            at_best = False
        tokens = lengths[item] - (lengths[other] if other >= 0 else 0)
        loads[here] -= tokens
        loads[there] += tokens
        pack_of_item[item] = there
        if other >= 0:
            pack_of_item[other] = here
        scores[u], scores[v] = score_u, score_v
        current += change
        if current < best:
            best = current
            at_best = True
    if not at_best:
        pack_of_item[:] = best_packs


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
