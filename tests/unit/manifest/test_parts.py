"""Parts of split rows: what verify says of right ones, and that every way to be wrong is seen."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.checks.parts import Parts
from hbp_prep.manifest.parts import part_name, part_range
from tests.unit.manifest.forging import edit_rows, failed, reseal

Row = tuple[int, str | None, int, int | None]  # row, original_id, num_tokens, truncated_from
GOOD: list[Row] = [
    (3, "a", 10, None),
    (4, "b[0:10]", 10, 25),
    (4, "b[9:19]", 10, 25),  # one token of context
    (4, "b[19:25]", 6, 25),
    (5, "[10:20]", 10, 25),  # the first and the last part had no target
    (5, "[10:20]", 10, 25),  # the row is used twice
    (6, "c[0:9]", 9, 12),
]


def check(rows: list[Row], batch_rows: int = 100) -> tuple[int | None, str]:
    """Lost tokens, and what the check "samples" says."""
    findings = Findings(quick=False)
    parts = Parts("samples.arrow", findings)
    for start in range(0, len(rows), batch_rows):
        row, original_id, num_tokens, truncated_from = zip(*rows[start : start + batch_rows], strict=True)
        columns = {
            "source": pa.array(["s"] * len(row)).dictionary_encode(),
            "file": pa.array(["f"] * len(row)).dictionary_encode(),
            "row": pa.array(row, pa.int64()),
            "original_id": pa.array(original_id, pa.string()),
            "num_tokens": pa.array(num_tokens, pa.int32()),
            "truncated_from": pa.array(truncated_from, pa.int32()),
        }
        parts.add(pa.record_batch(columns), start)
    num_lost = parts.num_lost_tokens()
    return num_lost, next(check.detail for check in findings.report("out").checks if check.name == "samples")


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_what_right_parts_lack_is_counted(batch_rows: int) -> None:
    assert check(GOOD, batch_rows)[0] == 15 + 15 + 3


@pytest.mark.parametrize(
    "changed",
    [
        (4, "b", 10, 25),
        (4, None, 10, 25),
        (4, "b[9:20]", 10, 25),
        (4, "b[8:18]", 10, 25),
        (4, "b[9:19]", 10, 18),
    ],
)
def test_a_wrong_part_is_named(changed: Row) -> None:
    num_lost, problems = check([*GOOD[:2], changed, *GOOD[3:]])
    assert num_lost is None
    assert "samples.arrow: row 2: " in problems


@settings(deadline=None)
@given(original_id=st.none() | st.text(), first=st.integers(0, 2**31), length=st.integers(1, 2**20))
def test_names_tell_their_ranges(original_id: str | None, first: int, length: int) -> None:
    name = part_name(original_id, first, first + length)
    assert part_range(name) == (first, first + length)
    assert name.startswith(original_id or "[")


def test_names_of_whole_rows_have_none() -> None:
    assert [part_range(name) for name in (None, "", "a", "[1:]", "[1:2] ", "[a:b]")] == [None] * 6


def test_verify_compares_cut_tokens_with_the_manifest(out) -> None:
    reseal(out, lambda value: value["totals"]["lost_tokens"].update(truncated=5))
    assert "lost_tokens: truncated: the manifest says 5, the samples lack" in failed(out)["totals"]


def test_verify_checks_parts_where_rows_were_split(out) -> None:
    def make_part(rows: list[dict]) -> None:
        for row in rows:
            row["truncated_from"] = None
        tokens = rows[0]["num_tokens"]
        rows[0] |= {"original_id": part_name("x", 1, 1 + tokens), "truncated_from": tokens + 3}

    edit_rows(out / "samples.arrow", make_part)
    reseal(out, lambda value: value["totals"].update(lost_tokens={"split": 3}))
    assert failed(out) == {}
    reseal(out, lambda value: value["totals"].update(lost_tokens={"split": 2}))
    assert "split: the manifest says 2, the samples lack 3" in failed(out)["totals"]
