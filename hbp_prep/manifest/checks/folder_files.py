"""Which files lie in the folder: all that the manifest names, and no others where readers look."""

from pathlib import Path

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.checks.findings import Findings
from hbp_prep.manifest.reader import check_file
from hbp_prep.manifest.schema import SCHEDULE_FOLDER, SHARDS_FOLDER, Manifest


def check_tables(folder: Path, manifest: Manifest, findings: Findings, *, quick: bool) -> bool:
    """Sizes and checksums of the files that are not shards.

    Returns:
        Whether all of them are as the manifest says.
    """
    whole = True
    for entry in (manifest.schedule.micro_steps, manifest.schedule.assignments, manifest.samples, manifest.rejected):
        try:
            check_file(folder, entry, checksum=not quick)
        except ManifestError as error:
            findings.add("files", str(error))
            whole = False
    return whole


def check_strays(folder: Path, manifest: Manifest, findings: Findings) -> None:
    """Files in ``shards/`` and in the folder of the schedule that the manifest does not name."""
    known = {entry.path for entry in manifest.files()}
    schedule_folder = manifest.schedule.micro_steps.path.rpartition("/")[0] or SCHEDULE_FOLDER
    for name in (SHARDS_FOLDER, schedule_folder):
        for path in sorted((folder / name).rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if not path.is_dir() and relative not in known:
                findings.add("stray_files", f"{relative} is not in the manifest")
