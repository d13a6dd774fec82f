"""Ctrl-C: the run ends at once, with one sentence, and goes on with --resume as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time

# A shell may have started the tests with interrupts ignored, which children inherit.
PROGRAM = """
import signal, sys
from hbp_prep.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main(sys.argv[1:])
"""


def test_an_interrupted_run_ends_at_once_and_can_be_resumed(
    tmp_path, write_recipe, hbp_prep, contents, tiny_corpus
) -> None:
    rows = [json.loads(line) for line in (tiny_corpus / "short.jsonl").read_text().splitlines()]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row | {"id": str(copy)}) + "\n" for copy in range(40) for row in rows))
    recipe, out = write_recipe(sources=[{"name": "rows", "paths": str(data)}]), tmp_path / "out"
    arguments = ["run", str(recipe), "--output", str(out), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (out / ".work" / "scans.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(1.0)  # the workers are starting or at work
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    started = time.monotonic()
    output, _ = process.communicate(timeout=60)
    seconds = time.monotonic() - started
    assert process.returncode == 130, output
    assert not (out / "manifest.json").exists()
    assert not (out / "shards").exists(), "the run went on after the interrupt"
    assert seconds < 5, f"the run took {seconds:.1f} s to end"
    assert "Interrupted" in output
    assert "Traceback" not in output

    hbp_prep(*arguments, "--resume", "--quiet")
    hbp_prep("run", recipe, "--output", tmp_path / "whole", "--quiet")
    assert contents(out) == contents(tmp_path / "whole")
