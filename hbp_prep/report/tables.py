"""The report's tables and sentences, made once from the content of metrics.json, shown on the terminal and on the page.

Cells are plain strings with user text as it is: whoever shows them escapes them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbp_prep.report.glossary import METRICS

Report = Mapping[str, Any]

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Table:
    """``note`` is a sentence below, or empty; ``text_columns`` hold words, the others figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    text_columns: tuple[int, ...] = (0,)


def verdict(report: Report) -> list[str]:
    """Two or three sentences: time, balance, nothing lost."""
    ours, naive = report["ours"], report["naive"]
    sentences = [_time_sentence(report)]
    sentences.append(
        f"Per micro-step, {percent(ours['abr'])} of the attention capacity waits for the slowest rank "
        f"(naive: {percent(naive['abr'])}); {percent(ours['cr'])} of the tokens pay for sequence parallelism "
        f"(floor: {percent(ours['cr_floor'])}, naive: {percent(naive['cr'])})."
    )
    totals = report["totals"]
    lost = f"No sample is lost: each of {count(totals['num_samples'])} is in exactly one pack per epoch"
    if totals["num_rejected"]:
        sentences.append(
            f"{lost}; {count(totals['num_rejected'])} of {count(totals['rows_read'])} rows are not trained on, "
            "each listed with its reason."
        )
    else:
        sentences.append(f"{lost}, and no row was rejected.")
    return sentences + _lost_sentence(totals["lost_tokens"])


_LOST_WORDS = {
    "too_long": "of rows longer than the longest pack",
    "too_short": "of rows below min_tokens",
    "no_loss_tokens": "of long rows that have no target once they are cut",
    "truncated": "cut off behind the longest pack's length",
    "split": "in parts of split rows that have no target or are below min_tokens",
}


def _lost_sentence(lost_tokens: Mapping[str, int]) -> list[str]:
    """Which tokens the length limits keep out of training; empty if none."""
    parts = [f"{count(number)} {_LOST_WORDS.get(key, key)}" for key, number in lost_tokens.items() if number]
    return [f"Tokens that the length limits leave out: {'; '.join(parts)}."] if parts else []


def _time_sentence(report: Report) -> str:
    ours, naive = report["ours"]["predicted_hours"], report["naive"]["predicted_hours"]
    times = f"Predicted training time {duration(ours)}, naive packing {duration(naive)}"
    if not ours or not naive:
        return f"{times}."
    faster = naive / ours
    compared = f"{faster:.2f} times as fast" if faster >= 1 else f"{ours / naive:.2f} times as long"
    return f"{times}: {compared}."


def comparison(report: Report) -> Table:
    """Every metric, ours beside naive packing."""
    rows = []
    for metric in METRICS:
        shown = _FORMATS[metric.unit]
        values = [lookup(report[side], metric.key) for side in ("ours", "naive")]
        if any(value is not None for value in values):
            rows.append((metric.label, *(NOTHING if value is None else shown(value) for value in values)))
    longest = report["naive"]["packing_groups"][-1]
    return Table(
        title="Against naive packing",
        columns=("metric", "this plan", "naive"),
        rows=tuple(rows),
        note=(
            f"Naive: iterative sampling and filtering to {longest['name']} (SP degree {longest['sp_degree']}), "
            f"micro-steps at random. Times are predicted for {report['model']} on {report['world_size']} x "
            f"{report['hardware']} ({report['cost_provenance']} cost model), not measured."
        ),
    )


def groups(report: Report) -> Table:
    """One row per packing group of this plan."""
    return packing_groups(report["ours"]["packing_groups"])


def packing_groups(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row per packing group, from a plan's metrics."""
    return Table(
        title="Packing groups",
        columns=("group", "SP", "DP", "GC", "packs", "micro-steps", "tokens", "fill", "ABR", "TBR", "time"),
        rows=tuple(_group_row(group) for group in rows),
        note="SP: GPUs that share a pack. DP: packs in a micro-step. GC: layers with gradient checkpointing.",
    )


def _group_row(group: Mapping[str, Any]) -> tuple[str, ...]:
    setting = (group["name"], str(group["sp_degree"]), str(group["dp_size"]), str(group["gc_layers"]))
    if not group["num_packs"]:
        return (*setting, "0", "0", "0", NOTHING, NOTHING, NOTHING, NOTHING)
    return (
        *setting,
        count(group["num_packs"]),
        count(group["num_micro_steps"]),
        short_count(group["num_tokens"]),
        percent(1 - group["pr"]),
        ratio(group["abr"]),
        ratio(group["tbr"]),
        duration(group["predicted_hours"]),
    )


def sources(report: Report) -> Table:
    """One row per source."""
    return Table(
        title="Sources",
        columns=("source", "rows", "samples", "tokens", "loss tokens", "mean length", "asked", "got"),
        rows=tuple(
            (
                source["name"],
                count(source["num_rows"]),
                count(source["num_samples"]),
                count(source["num_tokens"]),
                count(source["num_loss_tokens"]),
                NOTHING if source["mean_tokens"] is None else count(round(source["mean_tokens"])),
                percent(source["asked_share"]),
                percent(source["got_share"]),
            )
            for source in report["sources"]
        ),
        note="Asked and got are shares of samples: by the recipe's weights and limits, and after rejections.",
    )


def rejected(report: Report) -> Table:
    """Rows that are not trained on, by reason."""
    return Table(
        title="Rows not trained on",
        columns=("reason", "rows", "first of them", "detail"),
        rows=tuple(
            (
                item["reason"],
                count(item["num_rows"]),
                f"{item['example']['file']} row {item['example']['row']}",
                _shortened(item["example"]["detail"] or ""),
            )
            for item in report["rejected"]
        ),
        note="" if report["rejected"] else "None.",
        text_columns=(0, 2, 3),
    )


def lookup(metrics: Mapping[str, Any], dotted: str) -> float | None:
    """The figure at a dotted key, or ``None`` where there is none."""
    value: Any = metrics
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def format_metric(unit: str, value: float) -> str:
    """A figure in its unit: one of ``ratio``, ``count``, ``duration``, ``days``."""
    return _FORMATS[unit](value)


def count(value: float) -> str:
    """``1,234,567``."""
    return f"{value:,.0f}"


def short_count(value: float) -> str:
    """``2.33M``: three digits and a power of a thousand; exact below ten thousand."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 10_000):
            scaled = value / size
            return f"{scaled:.{max(0, 2 - int(math.log10(scaled)))}f}{suffix}"
    return count(value)


def percent(value: float) -> str:
    """``12.3%``, and two more digits below one percent."""
    return f"{value:.1%}" if value >= 0.01 or value == 0 else f"{value:.3%}"


def ratio(value: float) -> str:
    """``0.0021``."""
    return f"{value:.4f}"


def duration(hours: float) -> str:
    """The unit that suits: ``41 s``, ``12.3 min``, ``5.2 h``, ``3.1 days``."""
    for size, unit in ((24.0, "days"), (1.0, "h"), (1 / 60, "min")):
        if hours >= 2 * size:
            return f"{hours / size:,.1f} {unit}"
    return f"{hours * 3600:.1f} s"


def days(value: float) -> str:
    """``3.73``."""
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.4f}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"


_FORMATS: dict[str, Callable[[float], str]] = {"count": count, "duration": duration, "ratio": ratio, "days": days}
