"""docs/manifest.md is true: its example runs, and it names every column, key, check and reason."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hbp_prep.manifest import schema, tables
from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.reasons import Reason

DOCUMENT = (Path(__file__).parents[3] / "docs" / "manifest.md").read_text("utf-8")


@pytest.mark.parametrize("rank", [0, 3])
def test_the_example_reads_what_our_reader_reads(pristine, rank):
    program = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[-1]
    arguments = [sys.executable, "-c", program, str(pristine), str(rank)]
    output = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    lines = [tuple(map(int, line.split())) for line in output.splitlines()]
    assert lines == [
        (item.step, item.micro_step, pack.pack_id, len(pack.input_ids), len(pack.input_ids))
        for item, pack in ManifestReader(pristine).packs_of_rank(rank)
    ]


def test_every_name_is_described():
    columns = [name for item in vars(tables).items() if item[0].endswith("_SCHEMA") for name in item[1].names]
    entries = (schema.Manifest, schema.GroupEntry, schema.ScheduleEntry, schema.Totals, schema.ShardEntry)
    keys = [field.name for entry in entries for field in dataclasses.fields(entry)]
    described = set(re.findall(r"[`\"]([a-z0-9_]+)[`\"]", DOCUMENT))
    assert {*columns, *keys, *Reason} - described == set()
