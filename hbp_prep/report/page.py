"""The report as one self-contained page: no script, no network, readable on a phone, light and dark.

Everything from the user (names of sources and files, the recipe) is escaped by the template.
"""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hbp_prep.report import tables
from hbp_prep.report.charts import draw_charts
from hbp_prep.report.figures import ReportData
from hbp_prep.report.glossary import METRICS

TEMPLATE_NAME = "page.html.jinja"


def render_page(data: ReportData) -> str:
    """The page's HTML. Equal data gives equal text."""
    environment = Environment(
        loader=PackageLoader("hbp_prep.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    report = data.report
    charts = draw_charts(data)
    return environment.get_template(TEMPLATE_NAME).render(
        report=report,
        verdict=tables.verdict(report),
        tiles=_tiles(report),
        comparison=tables.comparison(report),
        groups=tables.groups(report),
        sources=tables.sources(report),
        rejected=tables.rejected(report),
        charts=[
            {
                "title": chart.title,
                "caption": chart.caption,
                "alt": chart.alt,
                "wide": Markup(chart.wide),  # noqa: S704 (drawn by us; texts in it are escaped by the renderer)
                "narrow": Markup(chart.narrow),  # noqa: S704
            }
            for chart in charts
        ],
        metrics=METRICS,
        facts=_facts(report),
        resolved=data.resolved,
    )


def _tiles(report: tables.Report) -> list[dict[str, str]]:
    """The four figures to see first."""
    ours, naive, totals = report["ours"], report["naive"], report["totals"]
    return [
        {
            "label": "predicted time",
            "value": tables.duration(ours["predicted_hours"]),
            "beside": f"naive {tables.duration(naive['predicted_hours'])}",
        },
        {"label": "ABR", "value": tables.ratio(ours["abr"]), "beside": f"naive {tables.ratio(naive['abr'])}"},
        {"label": "CR", "value": tables.ratio(ours["cr"]), "beside": f"floor {tables.ratio(ours['cr_floor'])}"},
        {
            "label": "samples",
            "value": tables.count(totals["num_samples"]),
            "beside": f"none lost, {tables.count(totals['num_rejected'])} rejected",
        },
    ]


def _facts(report: tables.Report) -> list[tuple[str, str]]:
    """Where the folder comes from."""
    tokenizer = report["tokenizer"]
    return [
        ("fingerprint", report["fingerprint"]),
        *((f"tokenizer {key.replace('_', ' ')}", str(value)) for key, value in sorted(tokenizer.items())),
        ("seed", str(report["seed"])),
        ("GPUs", f"{report['world_size']}, {report['gpus_per_node']} in a node"),
        (
            "schedule",
            f"{tables.count(report['num_steps'])} steps, {tables.count(report['num_micro_steps'])} micro-steps",
        ),
        ("epochs", str(report["epochs"])),
        (
            "cost model",
            f"{report['model']} on {report['hardware']}: {report['cost_provenance']}, {report['cost_source']}",
        ),
        ("made by", ", ".join(f"{name} {version}" for name, version in sorted(report["created_by"].items()))),
    ]
