"""Writing and reading ``OUT/report``: index.html for people, metrics.json for programs.

About two seconds for a small run, half of it the charts; no clock, so equal folders give equal bytes.
"""

import json
from pathlib import Path
from typing import Any

from hbp_prep import files
from hbp_prep.errors import ManifestError
from hbp_prep.manifest.verify import verify
from hbp_prep.progress import Progress, track
from hbp_prep.report.figures import collect
from hbp_prep.report.page import render_page

REPORT_FOLDER = "report"
PAGE_NAME = "index.html"
METRICS_NAME = "metrics.json"


def write_report(out: Path, progress: Progress) -> dict[str, Any]:
    """Write the report of the finished folder ``out``; returns the content of metrics.json (docs/metrics.md).

    metrics.json comes last: where it stands, the report is whole.

    Raises:
        ManifestError: the folder is unfinished or damaged.
        DataError: the report cannot be written.
    """
    with track(progress, "Writing the report", 2, "files"):
        data = collect(out)
        folder = out / REPORT_FOLDER
        (folder / METRICS_NAME).unlink(missing_ok=True)
        files.write_bytes(folder / PAGE_NAME, render_page(data).encode())
        progress.advance(1)
        files.write_json(folder / METRICS_NAME, data.report)
        progress.advance(1)
    return data.report


def rebuild_report(out: Path, progress: Progress) -> dict[str, Any]:
    """As :func:`write_report`, for a folder that may have been damaged since it was made: its tables are proven first.

    Raises:
        ManifestError: the folder is unfinished or damaged; every failed check is named.
        DataError: the report cannot be written.
    """
    verify(out, quick=True)
    return write_report(out, progress)


def read_report(out: Path) -> dict[str, Any]:
    """The content of metrics.json.

    Raises:
        ManifestError: there is no report, or it is damaged.
    """
    path = out / REPORT_FOLDER / METRICS_NAME
    try:
        report: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror}); make it with hbp-prep report {out}") from error
    except ValueError as error:
        raise ManifestError(f"{path} is damaged ({error}); make it again with hbp-prep report {out}") from error
    return report
