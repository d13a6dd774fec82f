"""The known faults of chat tokenisation and packing, by number: what is right here, and which tests show it.

A fault is a kind, and most kinds have tests of their own, beside the code; ``SHOWN_BY`` points at them and a test keeps
the pointers true. Faults that only the whole way from files to shards can show are tested below, on finished folders.
"""

import ast
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbp_prep.errors import ConfigError
from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.planning.types import PackingGroup
from hbp_prep.planning.validate import _validate_group

MASKS, RUN = "unit/tokenization/test_masks.py", "unit/tokenization/test_run.py"
SPANS, GOLDEN = "properties/test_tokenization_spans.py", "reference/test_golden_equality.py"
HERE = "integration/test_pitfalls.py"

# Number: (what is right, tests).
SHOWN_BY = {
    1: (
        "a template without generation marks has its spans derived, or is refused by name",
        [
            f"{MASKS}::test_underivable_templates_are_refused_by_name",
            f"{GOLDEN}::test_ids_and_masks_equal_transformers",
        ],
    ),
    2: (
        "a row, or a part of one, without any target is not trained, and counted",
        [
            f"{MASKS}::test_no_assistant_turn_is_rejected",
            f"{RUN}::test_over_length_truncate_cuts_ids_and_mask_together",
            "properties/test_tokenization_lengths.py::test_every_token_is_in_a_sample_or_counted",
        ],
    ),
    3: (
        "the stop token of every assistant turn is a target",
        [f"{MASKS}::test_golden_ids_and_mask", f"{HERE}::test_pitfall_3_every_turn_in_the_shards_ends_with_its_stop"],
    ),
    4: ("one render, one encoding", [f"{MASKS}::test_whole_conversation_is_encoded_once"]),
    5: (
        "mask first, then ids and mask are cut together",
        [
            f"{RUN}::test_over_length_truncate_cuts_ids_and_mask_together",
            "unit/sharding/test_sharding.py::test_shards_hold_the_tokens_of_cut_samples",
        ],
    ),
    6: ("every assistant turn is trained", [f"{MASKS}::test_every_turn_or_the_last"]),
    7: (
        "a last turn that is printed otherwise",
        [f"{MASKS}::test_last_turn_printed_otherwise", f"{MASKS}::test_history_that_the_template_strips"],
    ),
    8: ("no illegal prefix is rendered", [f"{MASKS}::test_illegal_prefixes_are_never_rendered"]),
    9: ("the first token of an answer is a target", [f"{MASKS}::test_golden_ids_and_mask"]),
    10: ("one BOS", [f"{MASKS}::test_bos_of_the_template_comes_once"]),
    11: (
        "spans by place, not by the answer's text",
        [f"{MASKS}::test_questions_that_look_like_answers", f"{SPANS}::test_real_spans_equal_the_twins"],
    ),
    12: (
        "long rows follow a policy that is counted",
        [
            f"{RUN}::test_over_length_drop_lists_the_row",
            "integration/test_bad_input.py::test_too_long_samples_follow_the_policy",
        ],
    ),
    13: (
        "what a trainer pads fits into the packing length",
        [
            f"{HERE}::test_pitfall_13_padding_for_sequence_parallelism_fits",
            f"{HERE}::test_pitfall_13_no_pack_of_a_folder_is_padded_beyond_its_length",
        ],
    ),
    14: ("positions begin anew in every sample", [f"{HERE}::test_pitfall_14_positions_begin_anew"]),
    16: (
        "the first token of a sample is never a target",
        [f"{HERE}::test_pitfall_16_no_sample_begins_with_a_target", f"{MASKS}::test_bos_of_the_template_comes_once"],
    ),
    17: (
        "keys are of contents",
        [
            f"{RUN}::test_anything_that_matters_is_tokenised_anew",
            "unit/tokenization/test_folder.py::test_fingerprint_is_of_contents",
            "unit/tokenization/test_rank_file.py::test_the_fingerprint_follows_the_ranks_and_the_family",
        ],
    ),
    21: ("a lone surrogate rejects its row alone", [f"{MASKS}::test_lone_surrogates_are_rejected"]),
    23: (
        "the number of workers changes no byte",
        [
            f"{RUN}::test_workers_do_not_change_a_byte",
            f"{HERE}::test_pitfall_23_workers_change_no_byte_where_rows_are_split",
        ],
    ),
    25: ("memory does not grow with the corpus", ["unit/tokenization/test_store.py::test_released_pages_leave_memory"]),
}


@pytest.mark.parametrize("number", SHOWN_BY)
def test_every_pitfall_has_its_tests(number: int) -> None:
    for pointer in SHOWN_BY[number][1]:
        file, name = pointer.split("::")
        tree = ast.parse((Path(__file__).parents[1] / file).read_text("utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"pitfall {number}: {pointer} does not exist"


@pytest.fixture(scope="module", params=["truncate", "split"])
def policy(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def prepared(policy: str, write_recipe, hbp_prep, tmp_path: Path) -> Path:
    """A folder whose long rows had to be cut."""
    groups = {"groups": [{"length": 256}, {"length": 1024, "sp_degree": 4}], "shard_tokens": 65536}
    recipe = write_recipe(packing=groups, over_length={"policy": policy}, max_rejected_fraction=1)
    hbp_prep("run", recipe, "--output", tmp_path / "out", "--workers", 1, "--quiet")
    hbp_prep("verify", tmp_path / "out", "--workers", 1)
    return tmp_path / "out"


def packs_of(out: Path) -> list[dict]:
    """Rows of all shards, with the name of their packing group."""
    return [
        {"group": path.parent.name, **row}
        for path in sorted((out / "shards").rglob("*.arrow"))
        for row in pa.ipc.open_file(path.read_bytes()).read_all().to_pylist()
    ]


def segments_of(out: Path) -> list[tuple[int, list[int], list[bool]]]:
    """(sample id, ids, mask) of every sample in the shards."""
    found = []
    for pack in packs_of(out):
        stops = np.cumsum(pack["seq_lengths"]).tolist()
        for sample, start, stop in zip(pack["sample_ids"], [0, *stops[:-1]], stops, strict=True):
            found.append((sample, pack["input_ids"][start:stop], pack["loss_mask"][start:stop]))
    return found


def test_pitfall_3_every_turn_in_the_shards_ends_with_its_stop(prepared: Path) -> None:
    """Wherever a run of targets ends, it is the stop token; only at the edge of a cut sample it may be another."""
    eos_id = json.loads((prepared / "manifest.json").read_text())["tokenizer"]["eos_id"]
    for _, ids, mask in segments_of(prepared):
        ends = [at for at in range(len(ids) - 1) if mask[at] and not mask[at + 1]]
        assert all(ids[at] == eos_id for at in ends)


@given(length=st.integers(1, 5000), sp_degree=st.integers(1, 64), num_tokens=st.integers(1, 5000))
def test_pitfall_13_padding_for_sequence_parallelism_fits(length: int, sp_degree: int, num_tokens: int) -> None:
    """A pack that is padded to a multiple of its SP degree is never longer than the packing length allows."""
    group = PackingGroup(name="g", pack_length=length, sp_degree=sp_degree, gc_layers=0)
    try:
        _validate_group(group, world_size=math.lcm(*range(1, 65)))
    except ConfigError:
        assert length % sp_degree
        return
    assert math.ceil(min(num_tokens, length) / sp_degree) * sp_degree <= length


def test_pitfall_13_no_pack_of_a_folder_is_padded_beyond_its_length(prepared: Path) -> None:
    groups = {group["name"]: group for group in json.loads((prepared / "manifest.json").read_text())["groups"]}
    for pack in packs_of(prepared):
        group = groups[pack["group"]]
        padded = math.ceil(pack["num_tokens"] / group["sp_degree"]) * group["sp_degree"]
        assert padded <= group["pack_length"]


def test_pitfall_14_positions_begin_anew(prepared: Path) -> None:
    packs = list(ManifestReader(prepared).all_packs())
    assert any(len(pack.seq_lengths) > 1 for pack in packs)
    for pack in packs:
        expected = [position for length in pack.seq_lengths.tolist() for position in range(length)]
        assert pack.position_ids.tolist() == expected


def test_pitfall_16_no_sample_begins_with_a_target(prepared: Path) -> None:
    segments = segments_of(prepared)
    assert not any(mask[0] for _, _, mask in segments)
    assert all(any(mask) for _, _, mask in segments)


def test_pitfall_23_workers_change_no_byte_where_rows_are_split(prepared: Path, hbp_prep, contents, tmp_path) -> None:
    hbp_prep("run", tmp_path / "recipe.yaml", "--output", tmp_path / "again", "--workers", 3, "--quiet")
    assert contents(tmp_path / "again") == contents(prepared)
