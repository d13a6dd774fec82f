"""Exact pack counts at the edges: few samples, equal samples, nothing in a group, very long lengths."""

import numpy as np
import pytest

from hbp_prep.errors import PlanError
from hbp_prep.planning.filling import fill
from hbp_prep.planning.planner import make_plan, naive_baseline
from hbp_prep.planning.types import Plan, PlanSpec
from tests.unit.planning.building import COST, check_plan, samples, skewed, spec

TWO = [(1024, 1), (8192, 4)]


def planned(settings: PlanSpec, lengths: list[int] | np.ndarray) -> Plan:
    data = samples(lengths)
    plan = make_plan(settings, data, COST)
    check_plan(plan, data)
    return plan


def micro_steps(plan: Plan) -> list[int]:
    return [group["num_micro_steps"] for group in plan.metrics["packing_groups"]]


def test_no_samples() -> None:
    with pytest.raises(PlanError, match="no samples"):
        planned(spec(TWO, 4), [])


def test_one_sample_on_one_gpu() -> None:
    assert micro_steps(planned(spec([(1024, 1)], 1), [1])) == [1]
    assert micro_steps(planned(spec([(1024, 1), (8192, 1)], 1), [1025])) == [0, 1]


def test_one_sample_goes_up_to_the_group_with_one_rank() -> None:
    assert micro_steps(planned(spec(TWO, 4), [100])) == [0, 1]


def test_all_equal_and_exactly_full() -> None:
    assert micro_steps(planned(spec(TWO, 4), [1024] * 12)) == [3, 0]


def test_all_equal_with_a_remainder_keeps_whole_micro_steps_short() -> None:
    """1,000 samples that fill a pack each, 32 ranks: 31 micro-steps stay short, and only 8 samples go up."""
    plan = planned(spec([(16_384, 1), (131_072, 8)], 32), [16_384] * 1000)
    assert micro_steps(plan) == [31, 1]
    assert plan.metrics["packing_groups"][1]["num_samples"] == 8


def test_a_remainder_smaller_than_the_longer_groups_ranks_takes_another_micro_step_along() -> None:
    """995 = 31 x 32 + 3, and 3 samples cannot feed the longer group's 4 ranks."""
    plan = planned(spec([(16_384, 1), (131_072, 8)], 32), [16_384] * 995)
    assert micro_steps(plan)[0] == 30
    assert plan.metrics["packing_groups"][1]["num_samples"] == 35


def test_all_longer_than_the_small_group() -> None:
    assert micro_steps(planned(spec(TWO, 4), [2000] * 9)) == [0, 3]


def test_long_samples_fewer_than_ranks_are_joined_by_short_ones() -> None:
    plan = planned(spec([(1024, 1), (8192, 2)], 8), [8000] + [10] * 2000)
    long = plan.metrics["packing_groups"][1]
    assert (long["num_micro_steps"], long["num_packs"]) == (1, 4)
    assert long["dbr"] < 0.75


def test_too_few_samples_for_the_ranks() -> None:
    with pytest.raises(
        PlanError, match=r"needs 8 packs \(1 micro-steps x 8 data-parallel ranks\).* 7 of the 7 samples"
    ):
        planned(spec([(1024, 1)], 8), [100] * 7)
    with pytest.raises(PlanError, match="fewer GPUs"):
        naive_baseline(spec([(1024, 1)], 8), samples([100] * 7), COST)


def test_as_many_samples_as_packs_is_one_each() -> None:
    """Next fit leaves two packs empty and two with a pair; an empty pack must not take both."""
    for seed in range(20):
        plan = planned(spec([(112, 1)], 8, strategy="random", seed=seed), [33, 98] * 4)
        assert np.diff(plan.packs.offsets).tolist() == [1] * 8


def test_three_groups() -> None:
    lengths = np.concatenate([skewed(3000, 30), np.full(40, 9000)])
    plan = planned(spec([(4096, 1), (16_384, 2), (131_072, 8)], 16), lengths)
    assert all(micro_steps(plan))
    for group in plan.metrics["packing_groups"]:
        assert group["dbr"] < 0.01
        assert group["pr"] == pytest.approx(plan.metrics["pr"], abs=0.03)


def test_lengths_to_a_million() -> None:
    lengths = [2**20, 2**20 - 1, 900_000, 600_000, 500_000, 500_000] + [1000] * 3000
    planned(spec([(65_536, 1), (2**20, 4)], 8, strategy="ffs"), lengths)


def test_levels_are_common_and_slack_is_spread() -> None:
    plan = planned(spec([(4096, 1), (131_072, 8)], 16), skewed(8000, 40))
    fills = [1 - group["pr"] for group in plan.metrics["packing_groups"]]
    assert max(fills) - min(fills) < 0.03
    assert plan.metrics["dbr"] < 0.003


def test_filling_is_not_biased_to_the_shortest() -> None:
    """What joins the long samples has the small samples' mean length, within a few standard errors."""
    lengths = skewed(8000, 40)
    settings = spec([(4096, 1), (131_072, 8)], 16)
    filled = fill(settings, lengths)
    joined = lengths[(filled.group_of_pack[filled.pack_of_sample] == 1) & (lengths <= 4096)]
    small = lengths[lengths <= 4096]
    assert len(joined) > 300
    assert abs(joined.mean() - small.mean()) < 4 * small.std() / np.sqrt(len(joined))


def test_an_exact_solver_saves_a_long_micro_step() -> None:
    """Four packs of 1000 hold these; best fit decreasing needs five, hence two micro-steps."""
    lengths = [501, 499, 502, 498, 503, 300, 197, 504, 299, 197]
    plan = planned(spec([(100, 1), (1000, 1)], 4, strategy="bfd"), lengths)
    assert micro_steps(plan) == [0, 1]
    best_fit = fill(spec([(1000, 1)], 1, strategy="bfd"), np.array(lengths, dtype=np.int32))
    assert len(best_fit.group_of_pack) >= 4


@pytest.mark.parametrize("strategy", ["random", "isf", "ffs", "ffd", "bfs", "bfd"])
def test_every_strategy_on_a_mixed_corpus(strategy: str) -> None:
    plan = planned(spec([(4096, 1), (131_072, 8)], 16, strategy=strategy), skewed(4000, 30))
    assert plan.metrics["cr"] - plan.metrics["cr_floor"] < 0.15


def test_samples_that_go_up_pass_by_a_group_that_is_settled() -> None:
    """The middle group keeps 8 of 9 samples; then the 6 short ones, too few for 8 ranks, go to the longest group."""
    plan = planned(spec([(100, 1), (200, 1), (704, 8)], 8), [200] * 9 + [100] * 6)
    assert micro_steps(plan) == [0, 1, 2]
    assert [group["num_samples"] for group in plan.metrics["packing_groups"]] == [0, 8, 7]
