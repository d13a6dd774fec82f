"""metrics.json, the terminal tables and the page, on a small finished folder."""

import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from hbp_prep.errors import ManifestError
from hbp_prep.progress import NoProgress
from hbp_prep.report import tables
from hbp_prep.report.figures import collect
from hbp_prep.report.terminal import print_report
from hbp_prep.report.write import read_report, write_report

EVIL = "<script>alert('x')</script> [bold]&amp;"
VOID = {"meta", "link", "br", "hr", "img", "input"}
SCRIPT = """
import sys
from pathlib import Path
from hbp_prep.progress import NoProgress
from hbp_prep.report.write import write_report
write_report(Path(sys.argv[1]), NoProgress())
"""


@pytest.fixture(scope="module")
def out(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "out"
    shutil.copytree(finished, folder)
    write_report(folder, NoProgress())
    return folder


@pytest.fixture(scope="module")
def report(out):
    return read_report(out)


@pytest.fixture(scope="module")
def page(out):
    return (out / "report" / "index.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Balanced tags, attributes and visible text; texts of <style> apart."""

    def __init__(self):
        super().__init__()
        self.stack, self.attributes, self.text, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def texts_in_order(value):
    if isinstance(value, dict):
        for key in value:
            yield from texts_in_order(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from texts_in_order(item)
    else:
        yield value


def test_ours_and_naive_have_the_same_keys(report, finished):
    assert report["ours"] == json.loads((finished / "manifest.json").read_text())["metrics"]
    assert report["ours"].keys() == report["naive"].keys()
    assert report["ours"]["abr"] < report["naive"]["abr"]
    assert report["naive"]["cr"] == 1.0
    assert all(math.isfinite(value) for value in texts_in_order(report) if isinstance(value, float))


def test_sources_and_rejections(report):
    short, evil = report["sources"]
    assert (short["name"], short["num_rows"], short["num_samples"], short["num_rejected"]) == ("short", 900, 900, 0)
    assert (evil["name"], evil["num_rows"], evil["num_samples"], evil["num_rejected"]) == (EVIL, 43, 40, 3)
    assert evil["asked_share"] == pytest.approx(43 / 943)
    assert evil["got_share"] == pytest.approx(40 / 940)
    assert short["num_tokens"] + evil["num_tokens"] == report["totals"]["num_tokens"]
    assert [(item["reason"], item["num_rows"]) for item in report["rejected"]] == [
        ("too_long", 2),
        ("no_loss_tokens", 1),
    ]
    assert report["rejected"][0]["example"]["row"] == 10_000


def test_charts_show_every_sample_pack_and_micro_step(finished, report):
    data = collect(finished)
    assert data.lengths.num_samples.sum(axis=1).tolist() == [900, 40]
    assert data.lengths.num_tokens.sum() == report["totals"]["num_tokens"]
    edges = data.lengths.edges
    assert edges[-1] == pytest.approx(16384)  # the longest sample is as long as the longest pack: left of its border
    assert sum(fill.num_packs for fill in data.fills[:-1]) == report["ours"]["num_packs"]
    assert all(fill.share.sum() == pytest.approx(1) for fill in data.fills)
    assert sum(len(band.position) for band in data.ours) == report["num_micro_steps"]
    ours = np.concatenate([1 - band.mean / band.highest for band in data.ours])
    assert ours.mean() == pytest.approx(report["ours"]["abr"])
    naive = np.concatenate([1 - band.mean / band.highest for band in data.naive])
    assert naive.mean() == pytest.approx(report["naive"]["abr"])
    for band in (*data.ours, *data.naive):
        assert (band.lowest <= band.mean + 1e-6).all()
        assert (band.mean <= band.highest + 1e-6).all()


def test_page_is_balanced_and_names_every_table(page, read):
    assert page.startswith("<!DOCTYPE html>")
    assert read.stack == []
    text = "".join(read.text)
    for heading in ("Against naive packing", "Lengths", "Fill of packs", "Packing groups", "Sources", "Configuration"):
        assert heading in text
    assert read.tags.count("h1") == 1
    assert ("meta", "name", "viewport") in read.attributes


def test_page_loads_nothing(page, read):
    assert "script" not in read.tags
    assert not {"link", "iframe", "object", "embed", "img", "image", "base"} & set(read.tags)
    for tag, name, value in read.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith("#"), (tag, name, value)
        if name.startswith("xmlns"):
            assert value in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)]*)", page))


def test_ids_are_unique_and_references_resolve(page, read):
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


def test_user_text_is_shown_as_text(page, read):
    text = "".join(read.text)
    assert text.count(EVIL) >= 5  # title, heading, sources, rejections, charts
    assert "<script" not in page
    assert f"because {EVIL}" in text
    assert f"tok {EVIL}" in text


def test_charts_have_words(read):
    labels = [value for tag, name, value in read.attributes if name == "aria-label" and tag == "div"]
    drawings = [label for label in labels if label.startswith(("Histogram", "Attention"))]
    assert len(drawings) == 3
    assert read.tags.count("svg") == 6


def test_page_serves_light_and_dark(page):
    assert "prefers-color-scheme: dark" in page
    assert "#010203" not in page
    assert "currentColor" in page
    assert not re.search(r'<rect[^>]*fill="(white|#fff(fff)?)"', page)


def test_terminal_shows_user_text_as_text(report):
    console = Console(file=io.StringIO(), width=240, highlight=False)
    print_report(report, console)
    shown = console.file.getvalue()
    assert EVIL in shown
    assert "No sample is lost: each of 940 is in exactly one pack per epoch; 3 of 943 rows are not trained on" in shown
    assert f"{report['ours']['abr']:.4f}" in shown
    assert f"{report['naive']['abr']:.4f}" in shown


def test_control_characters_do_not_reach_the_terminal(report):
    report = json.loads(json.dumps(report))
    report["sources"][0]["name"] = "red \x1b[31m\x07"
    console = Console(file=io.StringIO(), width=240, highlight=False)
    print_report(report, console)
    assert "\x1b" not in console.file.getvalue()
    assert "\x07" not in console.file.getvalue()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_same_bytes_in_another_process_and_place(out, tmp_path, hash_seed):
    copy = tmp_path / "elsewhere"
    shutil.copytree(out, copy)
    shutil.rmtree(copy / "report")
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT, str(copy)], env=environment, check=True)

    def digests(folder):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    assert digests(copy / "report") == digests(out / "report")


def test_without_rejections_and_resolved_yaml(builder, tmp_path):
    builder(tmp_path, rejected=False, resolved=False)
    report = write_report(tmp_path, NoProgress())
    assert report["name"] == tmp_path.name
    assert report["rejected"] == []
    assert tables.verdict(report)[-1].endswith("and no row was rejected.")
    assert "<summary>Configuration</summary>" not in (tmp_path / "report" / "index.html").read_text()


def test_unfinished_folder_and_missing_report(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    with pytest.raises(ManifestError, match="make it with hbp-prep report"):
        read_report(copy)
    (copy / "report").mkdir()
    (copy / "report" / "metrics.json").write_text("{")
    with pytest.raises(ManifestError, match="is damaged"):
        read_report(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(ManifestError, match="unfinished"):
        write_report(copy, NoProgress())


@pytest.mark.parametrize("text", ["a: [", "just words"])
def test_damaged_resolved_yaml(finished, tmp_path, text):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "resolved.yaml").write_text(text)
    with pytest.raises(ManifestError, match=r"resolved\.yaml"):
        write_report(copy, NoProgress())


def test_samples_that_disagree_with_the_manifest_are_refused(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / "samples.arrow"
    table = pa.ipc.open_file(path.read_bytes()).read_all().slice(1)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ManifestError, match=r"samples\.arrow does not agree with the manifest"):
        write_report(copy, NoProgress())
