"""The charts as static SVG: Altair specifications, rendered by vl-convert without a browser or a network.

Each chart is drawn twice, for wide and narrow screens. Text and axes take the page's text colour, so one drawing
serves light and dark. The first chart of a process costs about a second (imports), each further one 50 ms.
"""

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from hbp_prep.report.charted import CostBand, FillHistogram
from hbp_prep.report.figures import ReportData

WIDE_PIXELS = 735
NARROW_PIXELS = 270

_PALETTE = ("#3b7dd8", "#e8853a", "#3f9e6b", "#a66bbf", "#d9534f", "#2fa3a8", "#a07b55", "#8a8f98")
_NAIVE_COLOR = "#8a8f98"
_FEW_POINTS = 150
_HEADROOM = 1.4  # room above and below the drawn costs
_INK = "#010203"  # stands for the page's text colour until the drawing is done
_TOKENS_LABEL = (
    "datum.value >= 1048576 ? datum.value / 1048576 + 'M'"
    " : datum.value >= 1024 ? datum.value / 1024 + 'K' : datum.value"
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure: SVG texts for wide and narrow screens, and what it shows in words."""

    title: str
    caption: str
    alt: str
    wide: str
    narrow: str


def draw_charts(data: ReportData) -> list[Chart]:
    """All charts of the report."""
    return [_lengths(data), _fills(data), _costs(data)]


def _lengths(data: ReportData) -> Chart:
    histogram = data.lengths
    colors = alt.Scale(domain=list(histogram.names), range=list(_PALETTE[: len(histogram.names)]))

    def panel(counts: np.ndarray, title: str, width: int) -> Any:
        tops = np.cumsum(counts, axis=0)
        values = [
            {
                "source": name,
                "from": float(histogram.edges[bar]),
                "to": float(histogram.edges[bar + 1]),
                "low": int(tops[index, bar] - counts[index, bar]),
                "high": int(tops[index, bar]),
            }
            for index, name in enumerate(histogram.names)
            for bar in np.flatnonzero(counts[index])
        ]
        bars = (
            alt.Chart(alt.InlineData(values=values))
            .mark_rect(stroke=None)
            .encode(
                x=_length_axis(data, width),
                x2="to:Q",
                y=alt.Y("low:Q", title=None, axis=alt.Axis(format="~s", tickCount=4)),
                y2="high:Q",
                color=alt.Color("source:N", scale=colors, title=None, sort=list(histogram.names)),
            )
        )
        return alt.layer(bars, *_pack_borders(data)).properties(width=width, height=110, title=title)

    largest = int(np.argmax(histogram.num_tokens.sum(axis=0)))
    low, high = histogram.edges[largest], histogram.edges[largest + 1]
    return _chart(
        title="Lengths",
        caption="Samples and tokens by length of the sample (logarithmic). Dashed: packing lengths.",
        alt_text="Histograms of samples and of tokens by sample length and source. "
        f"Most tokens lie in samples of {low:,.0f} to {high:,.0f} tokens.",
        draw=lambda width: alt.vconcat(
            panel(histogram.num_samples, "samples", width), panel(histogram.num_tokens, "tokens", width), spacing=18
        ),
    )


def _length_axis(data: ReportData, width: int) -> alt.X:
    longest = max(float(data.lengths.edges[-1]), *(float(length) for _, length in data.pack_lengths))
    first, last = float(data.lengths.edges[0]), longest * 1.1
    step = 1 if width > 400 else 2
    ticks = [2**power for power in range(int(np.ceil(np.log2(first))), int(np.log2(last)) + 1, step)]
    axis = alt.Axis(values=ticks, labelExpr=_TOKENS_LABEL, grid=False)
    return alt.X("from:Q", title=None, axis=axis, scale=alt.Scale(type="log", base=2, domain=[first, last], nice=False))


def _pack_borders(data: ReportData) -> list[Any]:
    values = [{"from": length, "name": name} for name, length in data.pack_lengths]
    base = alt.Chart(alt.InlineData(values=values)).encode(x="from:Q")
    return [
        base.mark_rule(color=_INK, strokeDash=[4, 3], opacity=0.7),
        base.mark_text(color=_INK, align="right", dx=-4, y=8, fontSize=11).encode(text="name:N"),
    ]


def _fills(data: ReportData) -> Chart:
    def row(histogram: FillHistogram, width: int, is_last: bool) -> Any:
        size = 1 / len(histogram.share)
        values = [
            {"from": bar * size, "to": (bar + 1) * size, "share": float(share)}
            for bar, share in enumerate(histogram.share)
            if share > 0
        ]
        color = _NAIVE_COLOR if histogram.label.startswith("naive") else _PALETTE[0]
        packs = "pack" if histogram.num_packs == 1 else "packs"
        return (
            alt.Chart(alt.InlineData(values=values))
            .mark_rect(color=color)
            .encode(
                x=alt.X(
                    "from:Q",
                    title=None,
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format="%", labels=is_last, tickCount=5),
                ),
                x2="to:Q",
                y=alt.Y("share:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=2)),
                y2=alt.datum(0),
            )
            .properties(width=width, height=54, title=f"{histogram.label}: {histogram.num_packs:,} {packs}")
        )

    last = len(data.fills) - 1
    means = "; ".join(f"{fill.label}: {fill.share[-1]:.0%} of the packs are at least 95% full" for fill in data.fills)
    return _chart(
        title="Fill of packs",
        caption="Share of packs (upwards) by how full they are (to the right).",
        alt_text=f"Histograms of how full packs are. {means}.",
        draw=lambda width: alt.vconcat(
            *(row(fill, width, index == last) for index, fill in enumerate(data.fills)), spacing=8
        ),
    )


def _costs(data: ReportData) -> Chart:
    every = [*data.ours, *data.naive]
    low = max(1.0, min(float(band.lowest.min()) for band in every))
    high = max(float(band.highest.max()) for band in every)
    powers_of_ten = [10.0**power for power in range(int(np.ceil(np.log10(low))), int(np.log10(high)) + 1)]
    names = [band.group for band in data.ours]
    colors = alt.Scale(domain=names, range=list(_PALETTE[: len(names)]))

    def panel(bands: tuple[CostBand, ...], title: str, width: int, color: Any) -> Any:
        values = [
            {
                "group": band.group,
                "at": round(float(band.position[point]), 5),
                "low": max(low, float(band.lowest[point])),
                "mean": max(low, float(band.mean[point])),
                "high": max(low, float(band.highest[point])),
            }
            for band in bands
            for point in range(len(band.position))
        ]
        base = alt.Chart(alt.InlineData(values=values)).encode(
            x=alt.X(
                "at:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", grid=False, tickCount=5)
            ),
            color=color,
        )
        scale = alt.Scale(type="log", domain=[low / _HEADROOM, high * _HEADROOM], nice=False)
        axis = alt.Axis(format="~s", values=powers_of_ten)
        ranges = base.mark_rule(strokeWidth=3 if len(values) < _FEW_POINTS else 1.5, opacity=0.55).encode(
            y=alt.Y("low:Q", title=None, scale=scale, axis=axis), y2="high:Q"
        )
        means = base.mark_point(filled=True, size=28 if len(values) < _FEW_POINTS else 10, opacity=1).encode(
            y=alt.Y("mean:Q", scale=scale, axis=axis)
        )
        return alt.layer(ranges, means).properties(width=width, height=150, title=title)

    by_group = alt.Color("group:N", scale=colors, title=None, sort=names)
    ours, naive = data.report["ours"]["abr"], data.report["naive"]["abr"]
    return _chart(
        title="Attention cost per DP rank along the schedule",
        caption="Sum of squared sample lengths (logarithmic): a bar from the lightest to the heaviest DP rank of each "
        "micro-step, a dot at the mean. No bar to be seen: balanced. Where the schedule is long, the worst-balanced "
        "micro-steps of it are drawn.",
        alt_text=f"Attention cost per DP rank along the schedule. Mean imbalance (ABR) {ours:.4f} for this plan, "
        f"{naive:.4f} for naive packing.",
        draw=lambda width: alt.vconcat(
            panel(data.ours, "this plan", width, by_group),
            panel(data.naive, "naive packing", width, alt.value(_NAIVE_COLOR)),
            spacing=18,
        ),
    )


def _chart(*, title: str, caption: str, alt_text: str, draw: Any) -> Chart:
    return Chart(
        title=title,
        caption=caption,
        alt=alt_text,
        wide=_svg(draw(WIDE_PIXELS), legend_columns=4),
        narrow=_svg(draw(NARROW_PIXELS), legend_columns=2),
    )


def _svg(chart: Any, legend_columns: int) -> str:
    """Render, then turn the ink into the page's text colour."""
    configured = chart.configure(
        aria=False,
        background="transparent",
        font="sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=_INK,
            tickColor=_INK,
            domainColor=_INK,
            domainOpacity=0.4,
            tickOpacity=0.4,
            gridColor=_INK,
            gridOpacity=0.12,
            labelFontSize=12,
        ),
        title=alt.TitleConfig(color=_INK, fontSize=13, fontWeight="bold", anchor="start", offset=6),
        legend=alt.LegendConfig(
            symbolType="square",
            symbolOpacity=1,
            labelColor=_INK,
            labelFontSize=12,
            orient="top",
            labelLimit=120,
            columns=legend_columns,
        ),
    )
    svg: str = vl_convert.vegalite_to_svg(configured.to_dict())
    svg = svg.replace(_INK, "currentColor")
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
