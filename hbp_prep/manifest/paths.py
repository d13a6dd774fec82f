"""Paths inside a prepared folder: relative, forward slashes, and never out of it, not even through a link."""

from pathlib import Path, PurePosixPath

from hbp_prep.errors import ManifestError


def check_relative(path: str, where: str) -> str:
    """``path`` itself, when it is in the one plain form that the manifest allows.

    Raises:
        ManifestError: it is absolute, has ``..``, ``.``, empty parts, a backslash, a drive or a NUL.
    """
    parts = path.split("/")
    if "\\" in path or "\0" in path or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        raise ManifestError(f"{where}: {path!r} is not a plain relative path inside the folder (a/b/c, no '..')")
    return path


def inside(folder: Path, path: str) -> Path:
    """The file that ``path`` names in ``folder``.

    Raises:
        ManifestError: ``path`` is not a plain relative path, or a symbolic link leads out of the folder.
    """
    check_relative(path, "path")
    full = folder.joinpath(PurePosixPath(path))
    try:
        leaves = not full.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:
        raise ManifestError(f"{full} cannot be followed ({error})") from error
    if leaves:
        raise ManifestError(f"{full} is a link that leaves the folder {folder}; put the file itself there")
    return full
