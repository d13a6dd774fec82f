"""Running the command as users do, and comparing output folders byte by byte."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hbp_prep.cli.main import main


@pytest.fixture
def hbp_prep() -> object:
    """Call the command in this process: ``hbp_prep("run", recipe, "--output", out)``."""

    def call(*arguments: object, expect: int | None = 0) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
        assert expect in (None, result.exit_code), f"exit code {result.exit_code}:\n{result.output}"
        return result

    return call


@pytest.fixture
def contents() -> object:
    """All files of a prepared folder but ``.work``, as {relative path: bytes}."""

    def read(out: Path) -> dict[str, bytes]:
        files = (path for path in out.rglob("*") if path.is_file())
        named = {path.relative_to(out).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in sorted(named.items()) if not name.startswith(".work/")}

    return read


@pytest.fixture
def run_and_kill() -> object:
    """Run a recipe in a child process that is killed (SIGKILL) right after its n-th committed file.

    Returns the child's return code: -9 where it was killed, 0 where the run ended before.
    """
    program = """
import os, signal, sys
from hbp_prep import files
from hbp_prep.cli.main import main
kill_at, *arguments = sys.argv[1:]
count, original = 0, files.commit
def commit(temp, final):
    global count
    if "before" in kill_at and count + 1 == int(kill_at.split("-")[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    original(temp, final)
    count += 1
    if "after" in kill_at and count == int(kill_at.split("-")[1]):
        os.kill(os.getpid(), signal.SIGKILL)
files.commit = commit
main(arguments)
"""

    def run(kill_at: str, *arguments: object) -> int:
        command = [sys.executable, "-c", program, kill_at, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode in (0, -9), done.stderr
        return done.returncode

    return run
