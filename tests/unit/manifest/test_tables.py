"""What a damaged file says of itself is shown on one line, whatever bytes it is."""

from pathlib import Path

import pyarrow as pa
import pytest

from hbp_prep.errors import ManifestError
from hbp_prep.manifest.tables import check_metadata


@pytest.mark.parametrize("version", [b"\x0b", b"\n", b"\x1b[31m", "\u2028".encode(), b"\xff", b""])
def test_metadata_of_any_bytes_makes_one_line(version: bytes) -> None:
    schema = pa.schema([]).with_metadata({b"hbp.format_version": version})
    with pytest.raises(ManifestError, match="the file belongs to another run") as raised:
        check_metadata(Path("a.arrow"), schema, fingerprint="f")
    assert len(str(raised.value).splitlines()) == 1
    assert str(raised.value).isprintable()
