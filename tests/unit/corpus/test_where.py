"""Filters judge each row by itself, and nothing else is let in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus.types import SourceSpec
from hbp_prep.corpus.where import check_where, where_columns, where_is_true
from hbp_prep.errors import ConfigError
from hbp_prep.reasons import RowRejected


def source(where: str) -> SourceSpec:
    return SourceSpec(name="s", paths=(), where=where)


VALUES = st.none() | st.integers(-9, 9) | st.sampled_from(["a", "7", ""]) | st.floats(-1, 9) | st.booleans()


@given(rows=st.lists(st.fixed_dictionaries({}, optional={"score": VALUES, "lang": VALUES}), max_size=12))
@settings(deadline=None, max_examples=100)
def test_a_row_is_judged_the_same_alone_and_among_others(rows):
    spec = source("score >= 3 OR lang = 'a'")
    together = [v if isinstance(v, bool) else "rejected" for v in where_is_true(spec, rows)]
    alone = [v if isinstance(v, bool) else "rejected" for row in rows for v in where_is_true(spec, [row])]
    assert together == alone


def test_against_plain_python():
    rows = [{"score": n, "lang": lang} for n in (*range(6), None) for lang in ("en", "de", None)]
    found = where_is_true(source("score > 2 AND lang IN ('en', 'fr')"), rows)
    assert found == [row["score"] is not None and row["score"] > 2 and row["lang"] == "en" for row in rows]


@pytest.mark.parametrize(
    "where",
    [
        "score > 3",
        "length(text) < 100 AND NOT starts_with(text, 'x')",
        "array_length(messages) > 2",
        "coalesce(score, 0) + 1 > abs(score)",
        "CASE WHEN lang = 'en' THEN score > 1 ELSE score > 2 END",
        "lang LIKE 'e%' OR lang IS NULL OR score BETWEEN 1 AND 2",
        "score IN (1, 2)",
    ],
)
def test_what_is_possible(where):
    check_where(source(where))
    rows = [{"score": 3, "text": "abc", "messages": [1, 2, 3], "lang": "en"}]
    assert all(isinstance(verdict, bool) for verdict in where_is_true(source(where), rows))


@pytest.mark.parametrize(
    "where",
    [
        "score > avg(score)",
        "count(*) > score",
        "row_number() over () < 3 AND score > 1",
        "max(score) over (partition by lang) > 1",
        "score > (select 1)",
        "score > first(score)",
        "median(score) > 1",
        "quantile_cont(score, 0.5) > 1",
        "unnest(tags) = 'a'",
    ],
)
def test_what_looks_at_several_rows_is_refused(where):
    with pytest.raises(ConfigError, match="judge each row by itself"):
        check_where(source(where))


@pytest.mark.parametrize("where", ["score >", "read_csv('/etc/passwd') = 1", "*", "__import__('os')", "random() < 0.5"])
def test_what_polars_does_not_read_is_refused(where):
    with pytest.raises(ConfigError, match="no expression that polars reads"):
        check_where(source(where))


def test_a_filter_without_a_column_is_refused():
    with pytest.raises(ConfigError, match="names no column"):
        check_where(source("1 = 1"))


def test_columns():
    assert where_columns(source("a > 1 AND b = a")) == {"a", "b"}


def test_a_filter_that_gives_no_truth_value_rejects_rows():
    verdicts = where_is_true(source("score + 1"), [{"score": 1}, {"score": 2}])
    assert all(isinstance(verdict, RowRejected) for verdict in verdicts)
