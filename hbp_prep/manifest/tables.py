"""Columns of every Arrow file of a prepared folder, and the metadata that ties a file to its manifest.

All files are Arrow IPC *files* without compression, so that they can be memory-mapped. Types may widen
(``large_list`` for ``list``, another index type of a dictionary); :func:`check_columns` accepts both.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.schema import FORMAT, FORMAT_VERSION

_NAME = pa.dictionary(pa.int32(), pa.string())

SHARD_SCHEMA = pa.schema(
    [
        pa.field("pack_id", pa.int64(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.bool_()), nullable=False),
        pa.field("seq_lengths", pa.list_(pa.int32()), nullable=False),
        pa.field("sample_ids", pa.list_(pa.int64()), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("num_loss_tokens", pa.int32(), nullable=False),
        pa.field("attention_cost", pa.int64(), nullable=False),
    ]
)

MICRO_STEPS_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int16(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("micro_step", pa.int16(), nullable=False),
        pa.field("group", _NAME, nullable=False),
        pa.field("phase", _NAME, nullable=False),
        pa.field("num_tokens", pa.int64(), nullable=False),
        pa.field("num_loss_tokens", pa.int64(), nullable=False),
        pa.field("abr", pa.float32(), nullable=False),
        pa.field("dbr", pa.float32(), nullable=False),
        pa.field("tbr", pa.float32(), nullable=False),
        pa.field("predicted_seconds", pa.float32(), nullable=False),
    ]
)

ASSIGNMENTS_SCHEMA = pa.schema(
    [
        pa.field("step", pa.int32(), nullable=False),
        pa.field("micro_step", pa.int16(), nullable=False),
        pa.field("dp_rank", pa.int32(), nullable=False),
        pa.field("pack_id", pa.int64(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
    ]
)

SAMPLES_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.int64(), nullable=False),
        pa.field("source", _NAME, nullable=False),
        pa.field("file", _NAME, nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("original_id", pa.string()),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("num_loss_tokens", pa.int32(), nullable=False),
        pa.field("truncated_from", pa.int32()),
        pa.field("group", _NAME, nullable=False),
        pa.field("pack_id", pa.int64(), nullable=False),
    ]
)

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("file", _NAME, nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("source", _NAME, nullable=False),
        pa.field("reason", _NAME, nullable=False),
        pa.field("detail", pa.string()),
    ]
)


def with_metadata(schema: pa.Schema, *, fingerprint: str, group: str | None = None) -> pa.Schema:
    """``schema`` with format, version, fingerprint and, for shards, the packing group in its metadata."""
    metadata = {"hbp.format": FORMAT, "hbp.format_version": str(FORMAT_VERSION), "hbp.fingerprint": fingerprint}
    return schema.with_metadata(metadata | ({} if group is None else {"hbp.group": group}))


def check_metadata(path: Path, schema: pa.Schema, *, fingerprint: str, group: str | None = None) -> None:
    """Refuse a file that belongs to another run, format or packing group.

    Raises:
        ManifestError: the first key that differs.
    """
    expected = with_metadata(pa.schema([]), fingerprint=fingerprint, group=group).metadata
    found = schema.metadata or {}
    for key, value in expected.items():
        if found.get(key) != value:
            raise ManifestError(
                f"{path}: its {key.decode()} is {_printable(found.get(key, b'absent').decode(errors='replace'))}, "
                f"the manifest's is {value.decode()}; the file belongs to another run"
            )


def check_columns(path: Path, schema: pa.Schema, expected: pa.Schema) -> None:
    """Refuse a file that lacks a column, has another one, or has one of another type.

    Raises:
        ManifestError: the first column that differs.
    """
    if schema.names != expected.names:
        raise ManifestError(
            f"{path}: expected the columns {', '.join(expected.names)}; found {_printable(', '.join(schema.names))}"
        )
    for field in expected:
        found = schema.field(field.name).type
        if not _same_type(found, field.type):
            raise ManifestError(f"{path}: column {field.name!r}: expected {field.type}, found {_printable(str(found))}")


def open_arrow(
    path: Path, expected: pa.Schema, *, fingerprint: str, group: str | None = None
) -> pa.RecordBatchFileReader:
    """Memory-map an Arrow file of the folder and check its columns and metadata.

    Raises:
        ManifestError: it is missing, damaged, or not what the manifest says.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
    except FileNotFoundError as error:
        raise ManifestError(f"{path} is missing; copy the whole folder, or run hbp-prep again") from error
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error
    try:
        check_columns(path, reader.schema, expected)
        check_metadata(path, reader.schema, fingerprint=fingerprint, group=group)
    except UnicodeDecodeError as error:
        raise damaged(path, error) from error
    return reader


def read_batch(path: Path, reader: pa.RecordBatchFileReader, index: int, expected: pa.Schema) -> pa.RecordBatch:
    """Record batch ``index``, with its offsets, indices and nulls checked so that nothing reads out of bounds.

    Raises:
        ManifestError: the batch is damaged, or has a null where none may be.
    """
    try:
        batch = reader.get_batch(index)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error
    for field, column in zip(expected, batch.columns, strict=True):
        num_nulls = column.null_count + (column.values.null_count if pa.types.is_list(field.type) else 0)
        if not field.nullable and num_nulls:
            raise ManifestError(f"{path}: column {field.name!r} has {num_nulls} nulls; none may be there")
    return batch


def iterate_batches(path: Path, reader: pa.RecordBatchFileReader, expected: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Every record batch in order, each checked by :func:`read_batch`."""
    for index in range(reader.num_record_batches):
        yield read_batch(path, reader, index, expected)


def damaged(path: Path, error: Exception) -> ManifestError:
    """The sentence for a file that Arrow cannot read."""
    lines = str(error).splitlines()
    return ManifestError(f"{path} is damaged or not an Arrow file ({lines[0] if lines else type(error).__name__})")


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and found.value_type == expected.value_type
    if pa.types.is_dictionary(expected):
        return pa.types.is_dictionary(found) and _same_type(found.value_type, expected.value_type)
    if pa.types.is_string(expected):
        return pa.types.is_string(found) or pa.types.is_large_string(found)
    return found == expected


def _printable(text: str) -> str:
    """Text of a file that may be damaged, for a message of one line: other characters as their escapes."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
