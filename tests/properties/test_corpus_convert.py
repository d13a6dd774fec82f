"""A row is anything: conversion gives a well-formed Conversation or a RowRejected, and nothing else comes out."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.corpus.formats import ROW_FORMATS
from hbp_prep.corpus.messages import ROLES, SPEAKERS
from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image"]) | ANYTHING}, optional={"text": ANYTHING})
)
CALLS = st.lists(
    st.fixed_dictionaries({}, optional={"name": SCALARS, "arguments": ANYTHING, "function": ANYTHING}) | ANYTHING,
    max_size=2,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(list(ROLES)) | ANYTHING,
            "from": st.sampled_from(list(SPEAKERS)) | ANYTHING,
            "content": st.text(max_size=5) | PARTS | ANYTHING,
            "value": st.text(max_size=5) | ANYTHING,
            "tool_calls": CALLS | CALLS.map(json.dumps) | ANYTHING,
            "name": SCALARS,
            "tool_call_id": SCALARS,
            "reasoning_content": SCALARS,
            "weight": ANYTHING,
            "loss_weight": SCALARS,
            "train": ANYTHING,
        },
    )
    | ANYTHING,
    max_size=3,
)
COLUMNS = sorted({column for row_format in ROW_FORMATS.values() for column in row_format.columns})
ROWS = st.dictionaries(st.sampled_from(COLUMNS), st.text(max_size=5) | MESSAGES | ANYTHING, max_size=8)


@pytest.mark.parametrize("name", ROW_FORMATS)
@given(row=ANYTHING | MESSAGES | ROWS, data=st.data())
@settings(deadline=None, max_examples=200)
def test_only_conversations_and_rejections_come_out(name, row, data):
    row_format = ROW_FORMATS[name]
    if isinstance(row, dict):
        needed = [column for column in row_format.columns if column not in row][:3]
        row |= {column: data.draw(st.text(max_size=5) | MESSAGES) for column in needed}
    assert row_format.detect(row) in (True, False)
    before = deepcopy(row)
    try:
        result = row_format.convert(row)
    except RowRejected as rejected:
        assert isinstance(rejected.reason, Reason)
        assert rejected.detail
        return
    check(result)
    assert row == before


def check(result: Conversation) -> None:
    assert bool(result.messages) != bool(result.text)
    assert result.original_id is None or isinstance(result.original_id, str)
    assert not {"messages", "add_generation_prompt"} & result.template_kwargs.keys()
    for message in result.messages:
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert isinstance(message["content"], str) or (message["content"] is None and message["tool_calls"])
        assert None not in {key: value for key, value in message.items() if key != "content"}.values()
