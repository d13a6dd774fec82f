"""The ledger knows what is complete and says what changed."""

from pathlib import Path

import pytest

from hbp_prep.errors import ManifestError
from hbp_prep.pipeline.ledger import Ledger


def test_a_completed_stage_is_current_only_for_equal_inputs(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger = Ledger(path)
    assert not ledger.is_current("planning", {"seed": 1})
    assert ledger.why_not_current("planning", {"seed": 1}) == "not done before"
    ledger.complete("planning", {"seed": 1, "groups": ({"length": 8},)})

    again = Ledger(path)
    assert again.is_current("planning", {"groups": [{"length": 8}], "seed": 1})
    assert not again.is_current("planning", {"groups": [{"length": 9}], "seed": 1})
    assert again.why_not_current("planning", {"seed": 2, "groups": [{"length": 8}], "x": None}) == (
        "seed: 1 -> 2; x: absent -> None"
    )


def test_a_stage_that_began_again_is_not_current(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    Ledger(path).complete("planning", {"seed": 1})
    Ledger(path).begin("planning")
    assert not Ledger(path).is_current("planning", {"seed": 1})


def test_many_changes_are_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.complete("planning", {str(number): number for number in range(9)})
    assert ledger.why_not_current("planning", {}).endswith("; and 6 more")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"version": 99, "stages": {}}', b'{"version":1,"stages":3}']
)
def test_a_damaged_ledger_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "ledger.json"
    path.write_bytes(text)
    with pytest.raises(ManifestError, match="--overwrite"):
        Ledger(path)
