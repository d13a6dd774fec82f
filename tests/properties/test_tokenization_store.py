"""Whatever is put into the token store, and in whatever order it is asked for, comes out again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.store import TokenStore, UnitWriter, read_counts, unit_path

tokens = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=1, max_size=40)
rejections = st.builds(RowRejected, st.sampled_from(Reason), st.text(max_size=5))
rows = st.lists(st.tuples(st.none() | st.text(max_size=5), tokens | rejections), max_size=12)


def storable(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()


@given(units=st.lists(rows, min_size=1, max_size=3), picks=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, units: list[list], picks) -> None:
    folder = Path(tmp_path_factory.mktemp("store"))
    for number, unit in enumerate(units):
        writer = UnitWriter()
        for index, (original_id, value) in enumerate(unit):
            if isinstance(value, list):
                ids, mask = zip(*value, strict=True)
                value = EncodedSample(np.array(ids, np.int32), np.array(mask, np.bool_))
            writer.add(10 + 2 * index, index, original_id, value)
        counts = writer.write(unit_path(folder, number), f"f{number}")
        assert read_counts(unit_path(folder, number), f"f{number}") == counts
    store = TokenStore(folder)
    places = [(number, index) for number, unit in enumerate(units) for index in range(len(unit))]
    picks.shuffle(places)
    for number, index in places:
        original_id, value = units[number][index]
        batch = store.unit(number).batch
        assert batch.column("row")[index].as_py() == 10 + 2 * index
        assert store.unit(number).original_ids[index].as_py() == storable(original_id)
        expected = value if isinstance(value, list) else []
        assert store.tokens(number, index).tolist() == [token for token, _ in expected]
        assert store.mask(number, index).tolist() == [is_loss for _, is_loss in expected]
        if not isinstance(value, list):
            assert batch.column("reason")[index].as_py() == value.reason
            assert batch.column("detail")[index].as_py() == storable(value.detail)
        if index % 3 == 0:
            store.release()
