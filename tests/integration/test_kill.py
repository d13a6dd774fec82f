"""kill -9 at every moment that matters, then --resume: the same bytes as an unbroken run."""

import pytest

ARGUMENTS = ("--workers", 1, "--quiet")


def resumed_run_equals_unbroken_one(kill_at, tmp_path, write_recipe, hbp_prep, contents, run_and_kill) -> bool:
    recipe, out, whole = write_recipe(), tmp_path / "out", tmp_path / "whole"
    if run_and_kill(kill_at, "run", recipe, "--output", out, *ARGUMENTS) == 0:
        return False
    if (out / ".work").exists() and not (out / "manifest.json").exists():
        refused = hbp_prep("run", recipe, "--output", out, *ARGUMENTS, expect=2)
        assert "--resume" in refused.output
        assert "unfinished" in hbp_prep("verify", out, "--quiet", expect=1).output
    hbp_prep("run", recipe, "--output", out, *ARGUMENTS, "--resume")
    hbp_prep("run", recipe, "--output", whole, *ARGUMENTS)
    assert contents(out) == contents(whole)
    assert not list(out.rglob("*.tmp"))
    hbp_prep("verify", out, "--workers", 1, "--quiet")
    return True


@pytest.mark.parametrize("kill_at", ["after-1", "after-2", "before-4", "after-7", "before-11", "after-14", "after-17"])
def test_killed_in_each_stage(kill_at, tmp_path, write_recipe, hbp_prep, contents, run_and_kill) -> None:
    assert resumed_run_equals_unbroken_one(kill_at, tmp_path, write_recipe, hbp_prep, contents, run_and_kill)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 31))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_commit(moment, number, tmp_path, write_recipe, hbp_prep, contents, run_and_kill) -> None:
    kill_at = f"{moment}-{number}"
    if not resumed_run_equals_unbroken_one(kill_at, tmp_path, write_recipe, hbp_prep, contents, run_and_kill):
        assert number > 10, "a run has more files than that"
