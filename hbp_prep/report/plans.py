"""Plans without a prepared folder: one plan's tables, and many methods side by side as a table, SVG or HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import altair as alt
import vl_convert

from hbp_prep.report.glossary import METRICS
from hbp_prep.report.tables import NOTHING, Table, format_metric, lookup, packing_groups, ratio

COLUMNS = (
    ("pr", "PR"),
    ("dbr", "DBR"),
    ("abr", "ABR"),
    ("wabr", "wABR"),
    ("tbr", "TBR"),
    ("cr", "CR"),
    ("cr_floor", "CR floor"),
    ("batch_bias.mean", "bias"),
    ("batch_bias.random_mean", "random"),
)

PADDING = {"left": 24, "top": 5, "right": 5, "bottom": 5}
"""Room for labels: a browser's letters are wider than those that a drawing was measured with."""


def plan_tables(metrics: Mapping[str, Any]) -> list[Table]:
    """Metrics and bounds of one plan, and its packing groups.

    Args:
        metrics: A plan's metrics with ``strategy``, ``world_size`` and ``planning_seconds``.
    """
    rows = [
        (metric.label, format_metric(metric.unit, value))
        for metric in METRICS
        if (value := lookup(metrics, metric.key)) is not None
    ]
    bounds = metrics["bounds"]
    rows += [
        ("wABR, proven lower bound", ratio(bounds["wabr"])),
        ("micro-steps of one epoch", f"{bounds['num_micro_steps_planned']:,} (at least {bounds['num_micro_steps']:,})"),
        ("optimizer steps", f"{metrics['num_steps']:,}"),
        ("planning time", f"{metrics['planning_seconds']:.3f} s"),
    ]
    table = Table(
        title=f"Plan ({metrics['strategy']}) of {metrics['num_samples']:,} samples, {metrics['num_tokens']:,} tokens, "
        f"for {metrics['world_size']:,} GPUs",
        columns=("metric", "this plan"),
        rows=tuple(rows),
    )
    return [table, packing_groups(metrics["packing_groups"])]


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row per method; a method that has no plan for these samples says why.

    Args:
        rows: Metrics with ``method`` and ``planning_seconds``, or ``method`` and ``error``.
    """
    body, notes = [], []
    for row in rows:
        if "error" in row:
            body.append((row["method"], *(NOTHING for _ in COLUMNS), NOTHING, NOTHING))
            notes.append(f"{row['method']}: {row['error']}.")
            continue
        cells = [ratio(value) if (value := lookup(row, key)) is not None else NOTHING for key, _ in COLUMNS]
        seconds = f"{row['planning_seconds']:.2f} s"
        body.append((row["method"], *cells, format_metric("duration", row["predicted_hours"]), seconds))
    return Table(
        title="Methods on one corpus",
        columns=("method", *(label for _, label in COLUMNS), "predicted", "planning"),
        rows=tuple(body),
        note=" ".join(["Times of training are predicted by the cost model, not measured.", *notes]),
    )


def comparison_svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """Bars: predicted time, and the imbalance of attention and of time, by method."""
    names = [row["method"] for row in rows if "error" not in row]
    panels = []
    for key, title in (("predicted_hours", "predicted hours"), ("wabr", "wABR"), ("tbr", "TBR"), ("cr", "CR")):
        values = [{"method": row["method"], "value": row[key]} for row in rows if "error" not in row]
        bars = alt.Chart(alt.InlineData(values=values)).mark_bar(color="#3b7dd8")
        bars = bars.encode(
            x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=5)), y=alt.Y("method:N", title=None, sort=names)
        )
        panels.append(bars.properties(width=260, height=18 * len(names), title=title))
    chart = alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:]))
    svg: str = vl_convert.vegalite_to_svg(chart.properties(padding=PADDING).to_dict())
    return svg


def comparison_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table and the chart as one page that needs nothing else."""
    table = comparison_table(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(table.title)}</title>'
        "<style>body{font:16px sans-serif;margin:2rem}td,th{padding:.2rem .6rem;text-align:right}"
        "td:first-child,th:first-child{text-align:left}</style>"
        f"<h1>{escape(table.title)}</h1><table><tr>{head}</tr>{body}</table><p>{escape(table.note)}</p>"
        f"{comparison_svg(rows)}</html>\n"
    )
