"""The output folder: where everything lies, what state it is in, and the lock that keeps two runs apart."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from hbp_prep import files
from hbp_prep.errors import ConfigError
from hbp_prep.manifest.schedule import replanned_schedules
from hbp_prep.manifest.schema import FORMAT

_OWN_FILES = ("manifest.json", "samples.arrow", "rejected.arrow", "resolved.yaml")
_OWN_FOLDERS = ("shards", "schedule", "report", ".work")


class State(Enum):
    """What a path holds before a run."""

    ABSENT = "absent"  # nothing there, or an empty folder
    FOREIGN = "foreign"  # something that is not ours
    UNFINISHED = "unfinished"
    FINISHED = "finished"


class OutputFolder:
    """Paths inside ``OUT``."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.manifest = self.root / "manifest.json"
        self.resolved = self.root / "resolved.yaml"
        self.work = self.root / ".work"
        self.ledger = self.work / "ledger.json"
        self.scans = self.work / "scans.json"
        self.corpus = self.work / "corpus"
        self.tokens = self.work / "tokens"
        self.table = self.work / "sample_table.arrow"
        self.rejected = self.work / "rejected.arrow"
        self.plan = self.work / "plan"
        self.metrics = self.root / "report" / "metrics.json"
        self.page = self.root / "report" / "index.html"

    def state(self) -> State:
        """What stands at the path now."""
        if not files.is_unicode(str(self.root)):
            raise ConfigError(f"--output {str(self.root)!a} is not UTF-8; choose another name")
        try:
            if not self.root.exists():
                return State.ABSENT
            if not self.root.is_dir():
                return State.FOREIGN
            if self.manifest.exists():
                return State.FINISHED if FORMAT.encode() in self.manifest.read_bytes() else State.FOREIGN
            if any(self.work.glob("*.json*")):
                return State.UNFINISHED
            # A run that broke off while it read its corpora has left nothing but what it had read.
            has_work_only = {path.name for path in self.root.iterdir()} <= {self.work.name}
            if has_work_only and (not self.work.exists() or {path.name for path in self.work.iterdir()} <= {"corpus"}):
                return State.ABSENT
            return State.FOREIGN
        except (OSError, ValueError) as error:
            raise ConfigError(f"--output {self.root} cannot be used ({error})") from error

    def remove_outputs(self) -> None:
        """Remove everything that a run writes, the manifest first; foreign files and the corpora's content stay."""
        for name in _OWN_FILES:
            (self.root / name).unlink(missing_ok=True)
        for path in (*(self.root / name for name in _OWN_FOLDERS), *replanned_schedules(self.root)):
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path == self.work and path.exists():
                for part in path.iterdir():
                    if part != self.corpus:
                        shutil.rmtree(part) if part.is_dir() else part.unlink()
            elif path.exists():
                shutil.rmtree(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one run. The lock is on the folder itself and ends with the process, however it ends.

        Raises:
            ConfigError: another run holds it.
            DataError: the folder cannot be made or opened.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.root, os.O_RDONLY)
        except OSError as error:
            raise files.write_error(self.root, error) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{self.root} is in use by another run; wait, or choose another --output") from None
            yield
        finally:
            os.close(handle)


def refuse_filled(output: Path) -> None:
    """Refuse an ``--output`` that has to be new or empty and is not.

    Raises:
        ConfigError: something stands there.
    """
    if OutputFolder(output).state() is not State.ABSENT:
        raise ConfigError(f"--output {output} is not empty; choose an empty or new folder")


def clean(root: Path) -> int:
    """Remove ``.work`` of a finished run; returns the bytes freed.

    Raises:
        ConfigError: there is no finished run, whose ``.work`` is all that a resume has.
    """
    folder = OutputFolder(root)
    if folder.state() is not State.FINISHED:
        raise ConfigError(f"{root} holds no finished run; its .work would be needed to resume (remove it by hand)")
    if not folder.work.exists():
        return 0
    num_bytes = sum(path.stat().st_size for path in folder.work.rglob("*") if path.is_file())
    with folder.lock():
        shutil.rmtree(folder.work)
    return num_bytes
