"""Filters: a polars SQL expression over a row's columns, read by polars alone; nothing is evaluated as Python.

An expression must judge each row by itself. Aggregates, windows and sub-queries would be taken over whatever rows
happen to be read together, so they are refused.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import ConfigError, first_line
from hbp_prep.reasons import Reason, RowRejected

# Parts of an expression, as polars serialises them, that look at one row at a time.
_NODES = frozenset({"BinaryExpr", "Column", "Literal", "Cast", "Ternary", "Function", "Alias"})
_FUNCTIONS = frozenset(
    {"StringExpr", "ListExpr", "ArrayExpr", "StructExpr", "TemporalExpr", "Boolean", "Coalesce", "Sql"}
)
_SCALAR_FUNCTIONS = frozenset(
    {
        "Abs",
        "Ceil",
        "Exp",
        "FillNull",
        "Floor",
        "Log",
        "MaxHorizontal",
        "MinHorizontal",
        "Negate",
        "Pow",
        "Round",
        "Sign",
    }
)
_BUT_NOT = frozenset(
    {
        "ConcatVertical",
        "Any",
        "All",
        "IsFirstDistinct",
        "IsLastDistinct",
        "IsUnique",
        "IsDuplicated",
        "AllHorizontalAgg",
    }
)


def check_where(source: SourceSpec) -> None:
    """Refuse a filter that cannot be read, names no column, or does not judge each row by itself.

    Raises:
        ConfigError: with what polars says.
    """
    if source.where is not None:
        _expression(source.where, source.name)


def where_columns(source: SourceSpec) -> set[str]:
    """The file's columns that the filter looks at."""
    return set() if source.where is None else set(_expression(source.where, source.name).meta.root_names())


def where_is_true(source: SourceSpec, rows: Sequence[dict[str, Any]]) -> list[bool | RowRejected]:
    """For every row whether the filter is true of it (null is not), or why that cannot be said.

    A column that a row lacks is null. The rows are judged together; where polars refuses (a text where others have
    numbers, say), one by one, so that only the odd ones are rejected.
    """
    assert source.where is not None
    expression = _expression(source.where, source.name)
    columns = sorted(where_columns(source))
    try:
        return [bool(value) for value in _evaluate(expression, columns, rows)]
    except (PolarsError, TypeError, ValueError, OverflowError):
        return [_judge(expression, columns, row) for row in rows]


def _judge(expression: pl.Expr, columns: Sequence[str], row: dict[str, Any]) -> bool | RowRejected:
    try:
        return bool(_evaluate(expression, columns, [row])[0])
    except (PolarsError, TypeError, ValueError, OverflowError) as error:
        return RowRejected(Reason.BAD_ROW, f"the filter cannot be evaluated ({first_line(error)})")


def _evaluate(expression: pl.Expr, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> NDArray[np.bool_]:
    frame = pl.DataFrame([pl.Series(name, [row.get(name) for row in rows]) for name in columns])
    result = frame.select(expression.alias("result"))["result"]
    if result.dtype not in (pl.Boolean, pl.Null) or len(result) != len(rows):
        raise TypeError(f"it gives {result.dtype}, not true or false")
    return result.fill_null(False).cast(pl.Boolean).to_numpy()


@lru_cache(maxsize=64)
def _expression(where: str, source_name: str) -> pl.Expr:
    try:
        expression = pl.sql_expr(where)
        tree = json.loads(expression.meta.serialize(format="json"))
        names = expression.meta.root_names()
    except (PolarsError, ValueError) as error:
        raise ConfigError(
            f"source {source_name!r}: where: {where!r} is no expression that polars reads ({first_line(error)})"
        ) from error
    if not names:
        raise ConfigError(f"source {source_name!r}: where: {where!r} names no column")
    if (odd := _not_by_row(tree)) is not None:
        raise ConfigError(
            f"source {source_name!r}: where: {where!r} does not judge each row by itself ({odd}); aggregates, windows "
            "and sub-queries are not possible here"
        )
    return expression


def _not_by_row(node: Any) -> str | None:
    """The first part of a serialised expression that looks at more than one row, or that is not known not to."""
    if isinstance(node, str):
        return None if node in _NODES else node
    kind, body = next(iter(node.items()))
    if kind not in _NODES:
        return str(kind)
    if kind in ("Column", "Literal"):
        return None
    if kind == "BinaryExpr":
        parts = [body["left"], body["right"]]
    elif kind == "Ternary":
        parts = [body["predicate"], body["truthy"], body["falsy"]]
    elif kind == "Cast":
        parts = [body["expr"]]
    elif kind == "Alias":
        parts = [body[0]]
    else:
        parts = body["input"]
        if (odd := _odd_function(body["function"])) is not None:
            return odd
    return next((odd for part in parts if (odd := _not_by_row(part)) is not None), None)


def _odd_function(function: Any) -> str | None:
    name, detail = next(iter(function.items())) if isinstance(function, dict) else (function, None)
    inner = next(iter(detail)) if isinstance(detail, dict) else detail
    if name in _SCALAR_FUNCTIONS or (name in _FUNCTIONS and inner not in _BUT_NOT):
        return None
    return str(name)
