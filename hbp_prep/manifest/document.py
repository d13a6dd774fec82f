"""``manifest.json`` on disk: written last, and sealed by a checksum of its own bytes.

``checksum`` is the SHA-256 of the file with that checksum's 64 digits replaced by zeros, so any changed byte, even a
space, is found when the file is loaded.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from hbp_prep import files
from hbp_prep.errors import ManifestError
from hbp_prep.manifest.schema import MANIFEST_NAME, Manifest, check_format

_UNSEALED = "0" * 64


def write_manifest(folder: Path | str, manifest: Manifest) -> None:
    """Seal and write ``folder/manifest.json`` atomically. Call it when every file it names is on disk.

    Equal manifests give equal bytes.

    Raises:
        ManifestError: ``manifest`` would not pass its own checks when read back.
        DataError: the folder cannot be written.
    """
    value = manifest.to_dict()
    Manifest.from_dict(value)
    unsealed = _render(value | {"checksum": _UNSEALED})
    checksum = hashlib.sha256(unsealed).hexdigest()
    files.write_bytes(Path(folder) / MANIFEST_NAME, _render(value | {"checksum": checksum}))


def manifest_path(folder_or_manifest: Path | str) -> Path:
    """The manifest's path, whether the folder or the file itself is named."""
    path = Path(folder_or_manifest)
    return path if path.name == MANIFEST_NAME and not path.is_dir() else path / MANIFEST_NAME


def load_manifest(folder_or_manifest: Path | str) -> Manifest:
    """Read, unseal and check a manifest.

    Raises:
        ManifestError: there is none (the folder is unfinished), it is of another format, or it was changed.
    """
    path = manifest_path(folder_or_manifest)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.parent.is_dir():
            message = f"{path.parent} has no manifest.json: it is unfinished, or not ours; run hbp-prep again"
        else:
            message = f"{path.parent} is not a folder; give the folder that hbp-prep wrote"
        raise ManifestError(message) from error
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        return _parse(data)
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from error


def _parse(data: bytes) -> Manifest:
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it is not JSON ({error}); run hbp-prep again") from error
    if not isinstance(value, dict):
        raise ManifestError("it is not a JSON object; run hbp-prep again")
    check_format(value)
    _check_seal(data, value.get("checksum"))
    return Manifest.from_dict(value)


def _check_seal(data: bytes, checksum: object) -> None:
    if isinstance(checksum, str) and len(checksum) == len(_UNSEALED):
        unsealed = data.replace(checksum.encode(errors="replace"), _UNSEALED.encode())
        if hashlib.sha256(unsealed).hexdigest() == checksum:
            return
    raise ManifestError("it does not match its own checksum: it was edited or damaged; run hbp-prep again")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _render(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"
