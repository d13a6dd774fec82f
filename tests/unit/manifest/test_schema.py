"""The manifest's types: every wrong or missing key is named; paths stay inside the folder."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.document import load_manifest, write_manifest
from hbp_prep.manifest.paths import check_relative, inside
from hbp_prep.manifest.schema import Manifest
from tests.unit.manifest.forging import manifest_dict

FREE_PARTS = ("metrics", "model", "cost_model", "created_by", "tokenizer")


def leaves(value, path=()):
    """Every path of keys that the format itself defines, objects and lists included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        if not (path == () and key in FREE_PARTS):
            yield from leaves(item, (*path, key))


def put(value, path, item):
    for key in path[:-1]:
        value = value[key]
    if item is ...:
        del value[path[-1]]
    else:
        value[path[-1]] = item


def dotted(path):
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def test_from_dict_is_the_inverse_of_to_dict(pristine):
    manifest = load_manifest(pristine)
    assert Manifest.from_dict(manifest.to_dict()) == manifest
    assert Manifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest


def test_every_missing_key_is_named(pristine):
    value = manifest_dict(pristine)
    paths = [path for path in leaves(value) if isinstance(path[-1], str)]
    for path in paths:
        if {"rejected_by_reason", "lost_tokens"} & set(path[:-1]) or path[:-1] == ("totals", "by_source"):
            continue  # free names
        broken = copy.deepcopy(value)
        put(broken, path, ...)
        with pytest.raises(ManifestError) as caught:
            Manifest.from_dict(broken)
        assert dotted(path) in str(caught.value)
    assert len(paths) > 60


@pytest.mark.parametrize("item", [None, "", True, -1, 1.5, [3], {"a": []}, 2**70])
def test_every_value_of_a_wrong_type_is_named(pristine, item):
    value = manifest_dict(pristine)
    num_refused = 0
    for path in leaves(value):
        original = value
        for key in path:
            original = original[key]
        if type(original) is type(item) and not isinstance(item, int):
            continue
        if type(item) is bool and type(original) is bool:
            continue
        broken = copy.deepcopy(value)
        put(broken, path, item)
        with pytest.raises(ManifestError) as caught:
            Manifest.from_dict(broken)
        parent = path[:-1] if path[-2:-1] in (("phases",), ("rejected_by_reason",), ("lost_tokens",)) else path
        assert dotted(parent) in str(caught.value)
        num_refused += 1
    assert num_refused > 30


@pytest.mark.parametrize(
    ("path", "item", "message"),
    [
        (("groups",), [], "expected at least one packing group"),
        (("groups", 1, "name"), "L64", "each of its own name"),
        (("groups", 0, "dp_size"), 3, "is not world_size 4"),
        (("groups", 0, "shards", 1, "path"), "shards/L64/part-00000.arrow", "is named twice"),
        (("tokenizer", "vocab_size"), 0, "tokenizer.vocab_size"),
        (("tokenizer", "name"), None, "tokenizer.name"),
    ],
)
def test_contradictions(pristine, path, item, message):
    value = manifest_dict(pristine)
    put(value, path, item)
    with pytest.raises(ManifestError, match=message.replace(".", r"\.")):
        Manifest.from_dict(value)


BAD_PATHS = ["/etc/passwd", "../x", "shards/../../x", "a//b", "./a", "a/.", "a\\b", "C:/x", "a\0b", "a/", ".."]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_could_leave(pristine, path):
    value = manifest_dict(pristine)
    value["groups"][0]["shards"][0]["path"] = path
    with pytest.raises(ManifestError, match=r"groups\[0\]\.shards\[0\]\.path.*not a plain relative path"):
        Manifest.from_dict(value)


@given(path=st.text(alphabet="ab./\\:\0 ~", min_size=1, max_size=12))
@settings(deadline=None, max_examples=300)
def test_accepted_paths_stay_inside(tmp_path_factory, path):
    folder = tmp_path_factory.getbasetemp()
    try:
        check_relative(path, "here")
    except ManifestError:
        return
    full = inside(folder, path)
    assert full.resolve().is_relative_to(folder.resolve())
    assert full.relative_to(folder).as_posix() == path


def test_links(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "out").symlink_to(tmp_path)
    (tmp_path / "folder" / "loop").symlink_to("loop")
    (tmp_path / "folder" / "here").symlink_to("real")
    with pytest.raises(ManifestError, match="leaves the folder"):
        inside(tmp_path / "folder", "out/x")
    assert inside(tmp_path / "folder", "here").name == "here"
    with pytest.raises(ManifestError):
        inside(tmp_path / "folder", "loop").stat()


def test_equal_manifests_give_equal_bytes_and_bad_ones_are_not_written(pristine, tmp_path):
    manifest = load_manifest(pristine)
    write_manifest(tmp_path, manifest)
    assert (tmp_path / "manifest.json").read_bytes() == (pristine / "manifest.json").read_bytes()
    value = manifest.to_dict() | {"fingerprint": ""}
    with pytest.raises(ManifestError, match="fingerprint"):
        Manifest.from_dict(value)
