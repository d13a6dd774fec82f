import json

import pytest

from hbp_prep.corpus.formats import ROW_FORMATS
from hbp_prep.corpus.renames import rename_columns, rename_keys
from hbp_prep.reasons import Reason, RowRejected

USER = {"role": "user", "content": "Why?"}
ASSISTANT = {"role": "assistant", "content": "Because."}
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {}}}


def messages(name: str, row) -> list[dict]:
    return ROW_FORMATS[name].convert(row).messages


def reason(name: str, row) -> Reason:
    with pytest.raises(RowRejected) as raised:
        ROW_FORMATS[name].convert(row)
    return raised.value.reason


def test_prompt_response():
    assert messages("prompt_response", {"prompt": "Why?", "completion": "Because."}) == [USER, ASSISTANT]
    assert messages("prompt_response", {"prompt": "Why?", "completion": None, "response": "Because."}) == [
        USER,
        ASSISTANT,
    ]
    assert messages("prompt_response", {"prompt": [SYSTEM, USER], "completion": [ASSISTANT]}) == [
        SYSTEM,
        USER,
        ASSISTANT,
    ]
    assert messages("prompt_response", {"prompt": [], "completion": [USER, ASSISTANT]}) == [USER, ASSISTANT]
    assert messages("prompt_response", {"prompt": [USER], "response": "Because."}) == [USER, ASSISTANT]
    assert reason("prompt_response", {"prompt": [], "completion": []}) == Reason.NO_MESSAGES
    assert reason("prompt_response", {"prompt": "a", "completion": "b", "response": "c"}) == Reason.BAD_ROW
    assert reason("prompt_response", {"prompt": "a"}) == Reason.BAD_ROW
    assert reason("prompt_response", {"completion": "a"}) == Reason.BAD_ROW
    assert reason("prompt_response", {"prompt": None, "completion": "a"}) == Reason.BAD_CONTENT


def test_alpaca():
    assert messages("alpaca", {"instruction": "Why?", "output": "Because."}) == [USER, ASSISTANT]
    assert messages("alpaca", {"instruction": "Why?", "input": " \n", "response": "Because."}) == [USER, ASSISTANT]
    assert messages("alpaca", {"instruction": "Add", "input": "1, 2", "output": "3"}) == [
        {"role": "user", "content": "Add\n\n1, 2"},
        {"role": "assistant", "content": "3"},
    ]
    row = {"instruction": "Why?", "output": "Because.", "system": "Be brief.", "history": [["a", "b"], ["c", "d"]]}
    assert [(message["role"], message["content"]) for message in messages("alpaca", row)] == [
        ("system", "Be brief."),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
        ("user", "Why?"),
        ("assistant", "Because."),
    ]
    for history in ["a", [["a"]], [{"a": "b"}], [["a", "b", "c"]]]:
        assert reason("alpaca", {"instruction": "a", "output": "b", "history": history}) == Reason.BAD_ROW
    assert reason("alpaca", {"instruction": "a", "output": "b", "history": [["a", None]]}) == Reason.BAD_CONTENT
    assert reason("alpaca", {"instruction": "a", "input": 3, "output": "b"}) == Reason.BAD_CONTENT
    assert reason("alpaca", {"instruction": "a", "output": ["b"]}) == Reason.BAD_CONTENT


def test_question_answer():
    assert messages("question_answer", {"question": "Why?", "answer": "Because."}) == [USER, ASSISTANT]
    assert reason("question_answer", {"question": "Why?"}) == Reason.BAD_ROW
    assert reason("question_answer", {"question": "Why?", "answer": 42}) == Reason.BAD_CONTENT


def test_bare_row_is_the_list_itself():
    assert messages("bare", [USER, {"from": "gpt", "value": "Because."}]) == [USER, ASSISTANT]
    assert reason("bare", []) == Reason.NO_MESSAGES
    assert reason("bare", {"messages": [USER]}) == Reason.BAD_ROW


@pytest.mark.parametrize("name", ["messages", "conversations"])
def test_lists_of_messages(name):
    assert messages(name, {name: [USER, ASSISTANT], "other": 1}) == [USER, ASSISTANT]
    assert reason(name, {}) == Reason.BAD_ROW
    assert reason(name, {name: None}) == Reason.BAD_ROW
    assert reason(name, {name: "[]"}) == Reason.BAD_ROW
    assert reason(name, {name: []}) == Reason.NO_MESSAGES
    assert reason(name, {name: [None]}) == Reason.BAD_ROW
    assert reason(name, [USER]) == Reason.BAD_ROW


def test_no_assistant_turn_is_not_judged_here():
    assert messages("messages", {"messages": [USER]}) == [USER]


def test_system_column():
    assert messages("messages", {"messages": [USER], "system": "Be brief."}) == [SYSTEM, USER]
    assert messages("messages", {"messages": [USER], "system": " "}) == [USER]
    assert messages("messages", {"messages": [SYSTEM, USER], "system": "Be brief."}) == [SYSTEM, USER]
    assert reason("messages", {"messages": [SYSTEM, USER], "system": "Be long."}) == Reason.BAD_ROW
    assert reason("messages", {"messages": [USER], "system": ["Be brief."]}) == Reason.BAD_CONTENT


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": "a1"}, "a1"),
        ({"id": 7}, "7"),
        ({"_id": "m"}, "m"),
        ({"idx": 0}, "0"),
        ({"id": None, "idx": 3}, "3"),
        ({"id": 1.5}, None),
        ({"id": True}, None),
        ({"id": ["a"]}, None),
        ({}, None),
    ],
)
def test_original_id(columns, expected):
    assert ROW_FORMATS["messages"].convert({"messages": [USER], **columns}).original_id == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, {}),
        ({"tools": None, "chat_template_kwargs": None}, {}),
        ({"tools": []}, {}),
        ({"tools": "[]"}, {}),
        ({"tools": " "}, {}),
        ({"tools": [TOOL]}, {"tools": [TOOL]}),
        ({"tools": json.dumps([TOOL])}, {"tools": [TOOL]}),
        ({"tools": [json.dumps(TOOL)]}, {"tools": [TOOL]}),
        ({"chat_template_kwargs": {"enable_thinking": False, "date": None}}, {"enable_thinking": False}),
        ({"chat_template_kwargs": '{"a": 1}', "tools": [TOOL]}, {"a": 1, "tools": [TOOL]}),
    ],
)
def test_template_kwargs(columns, expected):
    assert ROW_FORMATS["messages"].convert({"messages": [USER], **columns}).template_kwargs == expected


@pytest.mark.parametrize(
    "columns",
    [
        {"tools": "You can look things up."},
        {"tools": {"name": "look_up"}},
        {"tools": [1]},
        {"chat_template_kwargs": [1]},
        {"chat_template_kwargs": {"messages": []}},
        {"chat_template_kwargs": {"add_generation_prompt": True}},
    ],
)
def test_bad_template_kwargs(columns):
    assert reason("messages", {"messages": [USER], **columns}) == Reason.BAD_ROW


def test_renaming_hides_what_it_replaces():
    row = {"messages": "raw text", "chat": [USER], "id": 1}
    assert rename_columns(row, {"messages": "chat"}) == {"messages": [USER], "id": 1}
    assert rename_columns(row, {"messages": "missing"}) == {"chat": [USER], "id": 1}
    assert rename_columns({"a": 1, "b": 2}, {"a": "b", "b": "a"}) == {"a": 2, "b": 1}
    assert rename_columns([USER], {"a": "b"}) == [USER]


def test_rows_are_not_changed_by_conversion():
    row = {"messages": [dict(USER)], "system": "Be brief.", "tools": [TOOL]}
    before = json.dumps(row)
    ROW_FORMATS["messages"].convert(row)
    assert json.dumps(row) == before


BETTER, WORSE = {"role": "assistant", "content": "Because."}, {"role": "assistant", "content": "No."}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "Because.", "rejected": "No."},
        {"prompt": "Why?", "chosen": [USER, BETTER], "rejected": [USER, WORSE], "score_chosen": 8.0},
        {"prompt": [USER], "chosen": [BETTER], "rejected": [WORSE]},
        {"prompt": [USER], "chosen": BETTER, "rejected": WORSE},
        {"conversations": [{"from": "human", "value": "Why?"}], "chosen": {"from": "gpt", "value": "Because."}},
        {"question": "Why?", "chosen": "Because.", "rejected": "No."},
        {"instruction": "Why?", "input": "", "chosen": "Because.", "rejected": "No."},
        {"messages": [USER], "chosen": "Because.", "rejected": "No."},
    ],
)
def test_of_a_pair_the_better_answer(row):
    assert messages("preference", row) == [USER, BETTER]


def test_pairs_that_are_none():
    assert reason("preference", {"prompt": "Why?", "rejected": "No."}) == Reason.BAD_ROW
    assert reason("preference", {"chosen": "Because.", "rejected": "No."}) == Reason.BAD_ROW
    assert reason("preference", {"prompt": "Why?", "chosen": 3, "rejected": "No."}) == Reason.BAD_ROW
    assert reason("preference", {"prompt": 3, "chosen": "Because.", "rejected": "No."}) == Reason.BAD_CONTENT


def node(role: str, text: str, *replies: dict, **more) -> dict:
    return {"role": role, "text": text, "replies": list(replies), **more}


def test_of_a_tree_the_best_ranks():
    tree = node(
        "prompter",
        "Why?",
        node("assistant", "No.", rank=1),
        node("assistant", "Deleted.", rank=0, deleted=True),
        node(
            "assistant",
            "Because.",
            node("prompter", "And?", node("assistant", "So."), node("assistant", "Thus.", rank=3), rank=None),
            rank=0,
        ),
    )
    row = {"message_tree_id": "t1", "prompt": tree, "id": "other"}
    assert ROW_FORMATS["oasst"].detect(row)
    conversation = ROW_FORMATS["oasst"].convert(row)
    assert conversation.original_id == "t1"
    assert conversation.messages == [
        USER,
        ASSISTANT,
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Thus."},
    ]


def test_a_question_that_nobody_answered_ends_the_path():
    answered = node("prompter", "Why?", node("assistant", "Because.", node("prompter", "And?")))
    assert messages("oasst", {"prompt": answered}) == [USER, ASSISTANT]
    assert reason("oasst", {"prompt": node("prompter", "Why?")}) == Reason.NO_LOSS_TOKENS
    assert reason("oasst", {"prompt": node("user", "Why?")}) == Reason.BAD_ROLE
    assert reason("oasst", {"prompt": node("prompter", "Why?", 3)}) == Reason.BAD_ROW
    assert reason("oasst", {"prompt": {"role": "prompter", "text": "Why?", "replies": 3}}) == Reason.BAD_ROW
    assert reason("oasst", {"prompt": node("prompter", None)}) == Reason.BAD_CONTENT
    assert reason("oasst", {"prompt": "Why?"}) == Reason.BAD_ROW
    assert reason("oasst", {"prompt": None}) == Reason.BAD_ROW


def test_documents():
    conversation = ROW_FORMATS["text"].convert({"text": " a\n", "id": 7, "system": "not read"})
    assert (conversation.text, conversation.messages, conversation.original_id) == (" a\n", [], "7")
    assert reason("text", {"text": ""}) == Reason.BAD_CONTENT
    assert reason("text", {"text": 3}) == Reason.BAD_CONTENT
    assert reason("text", {}) == Reason.BAD_ROW


def test_keys_and_roles_of_messages_are_renamed():
    row = {"messages": [{"speaker": "Frage", "utterance": "Why?", "content": "hidden"}, {"speaker": "gpt"}, 3], "x": 1}
    renamed = rename_keys(row, {"role": "speaker", "content": "utterance"}, {"Frage": "user"})
    assert renamed == {"messages": [{"role": "user", "content": "Why?"}, {"role": "gpt"}, 3], "x": 1}
    assert rename_keys([{"from": "A", "value": "a"}], {}, {"A": "assistant"}) == [{"from": "assistant", "value": "a"}]
    assert rename_keys({"messages": "text", "roles": [{"role": "A"}]}, {}, {"A": "user"})["roles"] == [{"role": "A"}]
