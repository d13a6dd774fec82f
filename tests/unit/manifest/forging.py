"""Forgeries: change a prepared folder, then make its checksums and sizes agree again, as a careful adversary would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from hbp_prep import files
from hbp_prep.manifest.document import write_manifest
from hbp_prep.manifest.schema import Manifest
from hbp_prep.manifest.verify import examine

Rows = list[dict[str, Any]]


def read_rows(path: Path) -> Rows:
    """All rows of an Arrow file as dictionaries."""
    return pa.ipc.open_file(path.read_bytes()).read_all().to_pylist()


def edit_rows(path: Path, edit: Callable[[Rows], object]) -> None:
    """Change the rows of an Arrow file in place; types and metadata stay."""
    schema = pa.ipc.open_file(path.read_bytes()).schema
    rows = read_rows(path)
    edit(rows)
    arrays = []
    for field in schema:
        values = [row[field.name] for row in rows]
        is_dictionary = pa.types.is_dictionary(field.type)
        arrays.append(
            pa.array(values).dictionary_encode().cast(field.type) if is_dictionary else pa.array(values, field.type)
        )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def failed(out: Path, **options: Any) -> dict[str, str]:
    """The checks that do not pass, with what they found."""
    return {check.name: check.detail for check in examine(out, **options).checks if not check.ok}


def manifest_dict(out: Path) -> dict[str, Any]:
    """manifest.json as plain data, without its checksum."""
    value = json.loads((out / "manifest.json").read_bytes())
    del value["checksum"]
    return value


def reseal(out: Path, edit: Callable[[dict[str, Any]], object] = lambda value: None) -> None:
    """Write rows, sizes and checksums of all files as they are now into the manifest, then apply ``edit`` to it."""
    value = manifest_dict(out)
    _refresh(out, value)
    edit(value)
    write_manifest(out, Manifest.from_dict(value))


def _refresh(out: Path, value: Any) -> None:
    if isinstance(value, dict) and "sha256" in value and "path" in value:
        path = out / value["path"]
        rows = pa.ipc.open_file(path.read_bytes()).read_all().num_rows
        value |= {"rows": rows, "bytes": path.stat().st_size, "sha256": files.sha256_file(path)}
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _refresh(out, item)
