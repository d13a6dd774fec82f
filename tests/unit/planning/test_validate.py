from typing import Any

import numpy as np
import pytest

from hbp_prep.errors import ConfigError, PlanError
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, PackingGroup, Samples
from hbp_prep.planning.validate import validate_samples, validate_spec
from tests.unit.planning.building import COST, samples, spec

TWO = [(1024, 1), (8192, 4)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "randm"}, "packing.strategy: 'randm' is not known; did you mean 'random'"),
        ({"order": "sort"}, "batching.order: 'sort' is not known; did you mean 'sorted'"),
        ({"curriculum": Curriculum(kind="three")}, "curriculum.kind: 'three' is not known"),
        ({"world_size": 0}, "world_size is 0"),
        ({"world_size": 6}, "sp_degree 4 does not divide the world size 6"),
        ({"micro_steps_per_step": 0}, "micro_steps_per_step is 0"),
        ({"micro_steps_per_step": 40_000}, "between 1 and 32767"),
        ({"epochs": 0}, "epochs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"groups": ()}, "at least one packing group"),
        ({"groups": (PackingGroup(name="a", pack_length=1002, sp_degree=4),)}, "1002 is not a multiple .* 1000 would"),
        ({"groups": (PackingGroup(name="a", pack_length=0, sp_degree=1),)}, "length 0 must lie between"),
        ({"groups": (PackingGroup(name="a", pack_length=8, sp_degree=0),)}, "sp_degree 0"),
        ({"curriculum": Curriculum(first_phase_steps=3)}, "needs kind: two_phase"),
        ({"curriculum": Curriculum(kind="two_phase")}, "either first_phase_steps or first_phase_fraction"),
        ({"curriculum": Curriculum(kind="two_phase", first_phase_steps=1, first_phase_fraction=0.5)}, "either"),
        ({"curriculum": Curriculum(kind="two_phase", first_phase_fraction=1.5)}, "between 0 and 1"),
        ({"curriculum": Curriculum(kind="two_phase", first_phase_steps=-1)}, "must not be negative"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], words: str) -> None:
    settings = spec(TWO, changes.pop("world_size", 4), **{k: v for k, v in changes.items() if k != "groups"})
    if "groups" in changes:
        settings = type(settings)(**{**vars(settings), "groups": changes["groups"]})
    with pytest.raises(ConfigError, match=words):
        validate_spec(settings)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1024, 1), (1024, 2)], "lengths must be distinct and ascending"),
        ([(8192, 1), (1024, 2)], "lengths must be distinct and ascending"),
    ],
)
def test_wrong_groups(rows: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        validate_spec(spec(rows, 4))


def test_equal_names() -> None:
    twice = tuple(PackingGroup(name="same", pack_length=length, sp_degree=1) for length in (10, 20))
    with pytest.raises(ConfigError, match="called 'same'"):
        validate_spec(type(spec(TWO, 4))(**{**vars(spec(TWO, 4)), "groups": twice}))


def test_two_phases_need_two_groups() -> None:
    with pytest.raises(ConfigError, match="at least two packing groups"):
        validate_spec(spec([(8, 1)], 1, curriculum=Curriculum(kind="two_phase", first_phase_steps=1)))


def test_good_settings_pass() -> None:
    validate_spec(spec(TWO, 4, curriculum=Curriculum(kind="two_phase", first_phase_steps=0)))


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([5, 9000, 9001], r"sample 1 \(and 1 other samples\) has 9000 tokens; the longest packing length is 8192"),
        ([5, 0], "sample 1 has 0 tokens"),
        ([], "no samples"),
    ],
)
def test_wrong_samples(lengths: list[int], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make_plan(spec(TWO, 4), samples(lengths), COST)


def test_columns_that_disagree() -> None:
    good = samples([1, 2, 3])
    short = Samples(
        num_tokens=good.num_tokens,
        num_loss_tokens=good.num_loss_tokens[:2],
        source=good.source,
        source_names=good.source_names,
    )
    foreign = Samples(
        num_tokens=good.num_tokens,
        num_loss_tokens=good.num_loss_tokens,
        source=np.array([0, 1, 7], dtype=np.int16),
        source_names=good.source_names,
    )
    with pytest.raises(PlanError, match="different lengths"):
        validate_samples(spec(TWO, 4), short)
    with pytest.raises(PlanError, match="source 7; there are 3 sources"):
        validate_samples(spec(TWO, 4), foreign)
