import pytest

from hbp_prep.corpus.messages import SPEAKERS, convert_messages
from hbp_prep.reasons import Reason, RowRejected

CALL = {"type": "function", "function": {"name": "look_up", "arguments": {"word": "pack"}}}


def convert(message):
    return convert_messages([message])[0]


def rejected(message) -> RowRejected:
    with pytest.raises(RowRejected) as raised:
        convert_messages([{"role": "user", "content": "first"}, message])
    return raised.value


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_roles(role):
    assert convert({"role": role, "content": "x"}) == {"role": role, "content": "x"}


def test_developer_is_system():
    assert convert({"role": "developer", "content": "x"})["role"] == "system"


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_speakers(speaker):
    assert convert({"from": speaker, "value": "x"}) == {"role": SPEAKERS[speaker], "content": "x"}


def test_function_call_is_what_the_assistant_said():
    call = '{"name": "look_up", "arguments": {}}'
    assert convert({"from": "function_call", "value": call}) == {"role": "assistant", "content": call}


@pytest.mark.parametrize("role", ["User", " user", "human", "gpt", "", "ASSISTANT", "x" * 1_000_000])
def test_other_roles_are_rejected(role):
    assert rejected({"role": role, "content": "x"}).reason == Reason.BAD_ROLE


def test_bad_role_says_which_and_what_is_near():
    assert rejected({"role": "asistant", "content": "x"}).detail == (
        "messages[1] has the role 'asistant'; did you mean 'assistant'?"
    )
    assert "did you mean 'human'" in rejected({"from": "humans", "value": "x"}).detail


@pytest.mark.parametrize(
    "message", [{}, {"content": "x"}, {"role": 3, "content": "x"}, {"from": ["gpt"], "value": "x"}]
)
def test_no_role(message):
    assert rejected(message).reason == Reason.BAD_ROLE


def test_null_columns_of_the_other_style_do_not_matter():
    assert convert({"role": None, "content": None, "from": "gpt", "value": "x"}) == {
        "role": "assistant",
        "content": "x",
    }
    assert convert({"role": "user", "content": "x", "from": None, "value": None}) == {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    "content",
    [
        ["a", "b"],
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "text", "value": "ab"}],
        [{"type": "text", "text": "ab", "image_url": None}],
    ],
)
def test_text_parts_are_joined(content):
    assert convert({"role": "user", "content": content}) == {"role": "user", "content": "ab"}


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        3,
        {"text": "a"},
        [None],
        [{"type": "image_url", "image_url": {"url": "a"}}],
        [{"type": "text", "text": "a"}, {"type": "image"}],
        [{"type": "text", "text": None}],
        [{"text": "a"}],
    ],
)
def test_content_that_is_no_text(content):
    assert rejected({"role": "user", "content": content}).reason == Reason.BAD_CONTENT


def test_missing_content():
    assert rejected({"role": "user"}).detail == "messages[1] has no content"
    assert rejected({"from": "human", "content": "x"}).detail == "messages[1] has no value"
    assert rejected({"role": "assistant", "tool_calls": [], "content": None}).reason == Reason.BAD_CONTENT
    assert rejected({"role": "assistant", "tool_calls": "[]", "content": None}).reason == Reason.BAD_CONTENT


@pytest.mark.parametrize("empty", [{"content": None}, {}, {"content": []}])
def test_tool_calls_may_stand_without_content(empty):
    message = {"role": "assistant", "tool_calls": [CALL], **empty}
    assert convert(message) == {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.mark.parametrize("arguments", [{"word": "pack"}, '{"word": "pack"}', None])
def test_arguments_stay_as_they_are(arguments):
    for call in [{"function": {"name": "f", "arguments": arguments}}, {"name": "f", "arguments": arguments}]:
        assert convert({"role": "assistant", "content": "x", "tool_calls": [call]})["tool_calls"] == [call]


def test_tool_calls_as_json_text():
    message = {"role": "assistant", "content": "", "tool_calls": '[{"name": "f", "arguments": {}}]'}
    assert convert(message)["tool_calls"] == [{"name": "f", "arguments": {}}]


@pytest.mark.parametrize(
    "calls", [3, {"name": "f"}, ["f"], [{}], [{"function": {"name": 3}}], [{"name": "f", "arguments": [1]}], [None]]
)
def test_bad_tool_calls(calls):
    assert rejected({"role": "assistant", "content": "x", "tool_calls": calls}).reason == Reason.BAD_CONTENT


def test_what_templates_read_is_kept_and_the_rest_dropped():
    kept = {"name": "n", "tool_call_id": "c1", "reasoning_content": "hm", "weight": 0, "train": False}
    message = {"role": "assistant", "content": "x", **kept, "score": 3, "images": [], "tool_calls": None}
    assert convert(message) == {"role": "assistant", "content": "x", **kept}
    assert convert({"role": "assistant", "content": "x", "name": None}) == {"role": "assistant", "content": "x"}
    assert convert({"role": "user", "content": "x", "loss_weight": 0.0})["weight"] == 0


@pytest.mark.parametrize(
    "extra",
    [{"name": 3}, {"tool_call_id": 3}, {"reasoning_content": []}, {"weight": 0.5}, {"weight": "1"}, {"train": 1}],
)
def test_wrong_types_of_what_is_kept(extra):
    assert rejected({"role": "assistant", "content": "x", **extra}).reason == Reason.BAD_CONTENT
