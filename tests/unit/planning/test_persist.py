"""A plan on disk comes back equal, memory-mapped, or is refused."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from hbp_prep.errors import ManifestError
from hbp_prep.fingerprint import fingerprint
from hbp_prep.planning.persist import load_plan, save_plan
from hbp_prep.planning.planner import make_plan
from hbp_prep.planning.types import Curriculum, Plan
from tests.unit.planning.building import COST, samples, skewed, spec

SETTINGS = spec(
    [(4096, 1), (131_072, 8)], 16, epochs=2, curriculum=Curriculum(kind="two_phase", first_phase_fraction=0.5), seed=5
)


def made() -> Plan:
    return make_plan(SETTINGS, samples(skewed(2000, 20)), COST)


def arrays(plan: Plan) -> dict[str, np.ndarray]:
    parts = (plan.packs, plan.schedule, plan.micro_steps)
    return {
        f"{type(part).__name__}.{field.name}": value
        for part in parts
        for field in fields(part)
        if isinstance(value := getattr(part, field.name), np.ndarray)
    }


def test_a_plan_comes_back_equal(tmp_path: Path) -> None:
    plan = made()
    save_plan(plan, tmp_path)
    loaded = load_plan(tmp_path)
    assert loaded.spec == plan.spec
    assert loaded.metrics == plan.metrics
    assert loaded.schedule.phase_names == plan.schedule.phase_names
    for name, array in arrays(plan).items():
        found = arrays(loaded)[name]
        assert found.dtype == array.dtype and not found.flags.writeable, name
        np.testing.assert_array_equal(found, array, err_msg=name)


def test_arrays_have_the_agreed_types() -> None:
    types = {name: str(array.dtype) for name, array in arrays(made()).items()}
    assert {name for name, kind in types.items() if kind == "int16"} == {
        "Packs.group",
        "Schedule.epoch",
        "Schedule.micro_step",
        "Schedule.group",
        "Schedule.phase",
    }
    assert {name for name, kind in types.items() if kind == "int32"} == {
        "Packs.num_tokens",
        "Packs.num_loss_tokens",
        "Schedule.step",
    }
    assert {name for name, kind in types.items() if kind == "float64"} == {
        "MicroStepMetrics.abr",
        "MicroStepMetrics.dbr",
        "MicroStepMetrics.tbr",
        "MicroStepMetrics.predicted_seconds",
    }


def test_equal_plans_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_plan(made(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@pytest.mark.parametrize("name", ["packs.arrow", "micro_steps.arrow"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    save_plan(made(), tmp_path)
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    with pytest.raises(ManifestError, match=f"{name}.*run the planning stage again"):
        load_plan(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no finished plan"),
        ("{", "not valid JSON"),
        ("[]", "not a plan"),
        ('{"format": "hbp-plan"}', "version 1"),
    ],
)
def test_a_foreign_head_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ManifestError, match=words):
        load_plan(tmp_path)


SCRIPT = """
import sys
from tests.unit.planning.test_persist import digest, made
print(digest(made()))
"""


def digest(plan: Plan) -> str:
    """One figure for everything that a plan decides."""
    parts = [[name, array.tolist()] for name, array in sorted(arrays(plan).items())]
    return fingerprint([parts, json.loads(json.dumps(plan.metrics))])


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_another_process_makes_the_same_plan(hash_seed: str) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=root,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest(made())


def test_another_seed_makes_another_plan() -> None:
    data = samples(skewed(2000, 20))
    other = make_plan(type(SETTINGS)(**{**vars(SETTINGS), "seed": 6}), data, COST)
    assert digest(other) != digest(make_plan(SETTINGS, data, COST))
