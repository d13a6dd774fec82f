"""Derived loss spans equal those of a twin of the template that was marked with ``{% generation %}`` by hand."""

# ruff: noqa: RUF001 (characters of many bytes are the point)

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.encoding import EncodedSample, mask_by_chars
from hbp_prep.tokenization.tokenizer import ChatTokenizer
from tests.unit.tokenization.building import (
    EOS,
    chatml_twin,
    deepseek_v3_twin,
    llama3_1_twin,
    load,
    qwen3_twin,
    tulu3_twin,
    write_folder,
)

NASTY = (
    *(
        "a",
        "yes",
        "user",
        "assistant",
        " ",
        "\n",
        "\n\n",
        "\t",
        "é",
        "e\u0301",
        "\u0301",
        "𝔘",
        "🤯",
        "\u2028",
        "\ufdd0",
        "\ufdd3",
    ),
    *("<|user|>\n", "<|assistant|>", "<|assistant|>\n", "<|system|>", EOS, "<|bos|>", "<|im_start|>", "<|im_end|>"),
    *(
        "<|im_start|>assistant\n",
        "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>",
        "<|end_header_id|>\n\n",
    ),
    *("<think>", "</think>", "<think>\n\n</think>\n\n", "<tool_response>", "</tool_response>", "<tool_call>"),
    *("<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>", "<｜tool▁outputs▁end｜>"),
)
PLAIN = ("a", "yes", "no idea", " ", "\n", "é", "e\u0301", "𝔘", "one\n\ntwo ", "- x")

nasty_text = st.lists(st.sampled_from(NASTY), max_size=5).map("".join)
plain_text = st.lists(st.sampled_from(PLAIN), max_size=5).map("".join)
MANY = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
TwinPair = tuple[ChatTokenizer, ChatTokenizer]
# As Hugging Face does it; that other texts of special tokens do not act is tested with the room.
ALLOW = {"special_tokens_in_content": "allow"}


def conversations(texts: st.SearchStrategy[str], roles: tuple[str, ...]) -> st.SearchStrategy[Conversation]:
    message = st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(roles), texts)
    return st.lists(message, min_size=1, max_size=6).map(lambda messages: Conversation(messages, None))


def alternating(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Conversation]:
    def build(system: str | None, turns: list[tuple[str, str]]) -> Conversation:
        messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        for question, answer in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return Conversation(messages, None)

    return st.builds(build, st.none() | texts, st.lists(st.tuples(texts, texts), min_size=1, max_size=4))


def expected_mask(tokenizer: ChatTokenizer, text: str, spans: tuple[tuple[int, int], ...]) -> list[bool]:
    """By going through all tokens of all spans: those from the first to the last that has a character of the span."""
    offsets = tokenizer._tokenizer.encode(text, add_special_tokens=False).offsets
    mask = [False] * len(offsets)
    for start, end in spans:
        inside = [at for at, (first, stop) in enumerate(offsets) if first < end and stop > start]
        for at in range(inside[0], inside[-1] + 1) if inside else ():
            mask[at] = True
    return [False, *mask[1:]][: len(mask)]


def check_against_twin(tokenizer: ChatTokenizer, twin: ChatTokenizer, conversation: Conversation) -> bool:
    """Compare text, spans, ids and mask; whether the row was accepted."""
    (result,) = tokenizer.encode_batch([conversation])
    if isinstance(result, RowRejected):
        assert result.reason in (Reason.SPANS_UNPROVEN, Reason.NO_LOSS_TOKENS, Reason.TEMPLATE_ERROR)
        return False
    chat, marked = tokenizer.render(conversation), twin.render(conversation)
    assert (chat.text, chat.spans) == (marked.text, marked.spans)
    assert result.loss_mask.tolist() == expected_mask(tokenizer, marked.text, marked.spans)
    (other,) = twin.encode_batch([conversation])
    assert isinstance(other, EncodedSample)
    assert np.array_equal(other.input_ids, result.input_ids)
    assert np.array_equal(other.loss_mask, result.loss_mask)
    return True


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TwinPair]:
    """Built-in templates over a tokenizer with merges and NFC, each with its twin."""
    root = tmp_path_factory.mktemp("twins")
    folder = write_folder(root / "t", merges=(("Ċ", "Ċ"), (">", "Ċ"), ("y", "e"), ("ye", "s")), nfc=True)
    made = {}
    for name, text in (("tulu3", tulu3_twin()), ("chatml", chatml_twin())):
        (root / f"{name}.jinja").write_text(text)
        made[name] = load(folder, name, **ALLOW), load(folder, str(root / f"{name}.jinja"), **ALLOW)
    return made


@pytest.mark.parametrize("name", ["tulu3", "chatml"])
@given(conversation=alternating(nasty_text) | conversations(nasty_text, ("system", "user", "assistant")))
@MANY
def test_builtin_spans_equal_the_twins(twins: dict[str, TwinPair], name: str, conversation: Conversation) -> None:
    has_turn = any(message["role"] == "assistant" for message in conversation.messages)
    assert check_against_twin(*twins[name], conversation) == has_turn


@pytest.fixture(scope="module")
def one_token_a_byte(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load(write_folder(tmp_path_factory.mktemp("bytes") / "t"), "tulu3")


@given(conversation=alternating(nasty_text | st.text(max_size=8)))
@MANY
def test_decoded_targets_are_what_the_assistant_said(
    one_token_a_byte: ChatTokenizer, conversation: Conversation
) -> None:
    tokenizer = one_token_a_byte
    (result,) = tokenizer.encode_batch([conversation])
    assert isinstance(result, EncodedSample)
    trained = "".join(tokenizer.token_texts(result.input_ids[result.loss_mask].tolist()))
    assert trained == "".join(m["content"] + EOS for m in conversation.messages if m["role"] == "assistant")
    everything = "".join(tokenizer.token_texts(result.input_ids.tolist()))
    assert everything == tokenizer.render(conversation).text


spans_of_any_kind = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=3)


def check_any_spans(tokenizer: ChatTokenizer, text: str, cuts: list[tuple[int, int]]) -> None:
    """Masks of spans that begin and end anywhere, even inside a character that is split or merged by the tokenizer."""
    spans = tuple((start, min(start + length, len(text))) for start, length in cuts if start < len(text))
    encoding = tokenizer._tokenizer.encode(text, add_special_tokens=False)
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    assert mask_by_chars(offsets, spans).tolist() == expected_mask(tokenizer, text, spans)


@given(text=nasty_text | st.text(max_size=30), cuts=spans_of_any_kind)
@MANY
def test_masks_of_any_spans(twins: dict[str, TwinPair], text: str, cuts: list[tuple[int, int]]) -> None:
    check_any_spans(twins["tulu3"][0], text, cuts)


@pytest.mark.real
@given(text=nasty_text | st.text(max_size=30), cuts=spans_of_any_kind)
@MANY
def test_masks_of_any_spans_with_real_tokenizers(real: TwinPair, text: str, cuts: list[tuple[int, int]]) -> None:
    check_any_spans(real[0], text, cuts)


def with_twin(shared_data: Path, name: str, make_twin: Callable[[str], str], folder: Path) -> TwinPair:
    """A real tokenizer with its own template, and with the twin of that."""
    real_folder = shared_data / "tokenizers" / name
    path = folder / f"{name}.jinja"
    path.write_text(make_twin(json.loads((real_folder / "tokenizer_config.json").read_text())["chat_template"]))
    return load(real_folder, **ALLOW), load(real_folder, str(path), **ALLOW)


@pytest.fixture(scope="module")
def qwen3(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TwinPair:
    return with_twin(shared_data, "qwen3", qwen3_twin, tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module", params=["llama3_1", "qwen3", "deepseek_v3"])
def real(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TwinPair:
    makers = {"llama3_1": llama3_1_twin, "qwen3": qwen3_twin, "deepseek_v3": deepseek_v3_twin}
    return with_twin(shared_data, request.param, makers[request.param], tmp_path_factory.mktemp("real"))


@pytest.mark.real
@given(conversation=alternating(nasty_text) | conversations(nasty_text, ("system", "user", "assistant", "tool")))
@MANY
def test_real_spans_equal_the_twins(real: TwinPair, conversation: Conversation) -> None:
    check_against_twin(*real, conversation)


@pytest.mark.real
@given(conversation=alternating(plain_text))
@MANY
def test_ordinary_conversations_are_never_rejected(real: TwinPair, conversation: Conversation) -> None:
    assert check_against_twin(*real, conversation)


@pytest.mark.real
@given(
    conversation=alternating(plain_text), thoughts=st.lists(plain_text, min_size=9, max_size=9), by_key=st.booleans()
)
@MANY
def test_qwen3_thinking_is_never_rejected(
    qwen3: TwinPair, conversation: Conversation, thoughts: list[str], by_key: bool
) -> None:
    """Thoughts in a key of their own or in the content; the template strips those of earlier turns."""
    messages = []
    for message, thought in zip(conversation.messages, thoughts, strict=False):
        if message["role"] == "assistant" and by_key:
            message = message | {"reasoning_content": thought}
        elif message["role"] == "assistant":
            message = message | {"content": f"<think>\n{thought}\n</think>\n\n{message['content']}"}
        messages.append(message)
    assert check_against_twin(*qwen3, Conversation(messages, None))


@st.composite
def with_tool_outputs(draw: st.DrawFn) -> Conversation:
    """Calls as plain text, as corpora for models without a form of their own have them; outputs, answers."""
    messages: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(plain_text)})
        messages.append({"role": "assistant", "content": draw(plain_text)})
        outputs = draw(st.lists(plain_text.filter(str.strip), max_size=2))
        messages += [{"role": "tool", "content": output} for output in outputs]
        messages += [{"role": "assistant", "content": draw(plain_text)}] if outputs else []
    return Conversation(messages, None)


@pytest.mark.real
@given(conversation=with_tool_outputs())
@MANY
def test_answers_to_tool_outputs_are_never_rejected(real: TwinPair, conversation: Conversation) -> None:
    assert check_against_twin(*real, conversation)


@st.composite
def with_tool_calls(draw: st.DrawFn) -> Conversation:
    """Question, calls with or without content, results, answer: once or twice."""
    messages: list[dict[str, Any]] = []
    arguments = st.dictionaries(plain_text, plain_text, max_size=2) | plain_text.map(json.dumps)
    for _ in range(draw(st.integers(1, 2))):
        question = nasty_text.filter(lambda text: not text.startswith("<tool_response>"))  # not a tool's in disguise
        messages.append({"role": "user", "content": draw(question)})
        calls = [{"name": f"f{n}", "arguments": draw(arguments)} for n in range(draw(st.integers(1, 3)))]
        called = [{"type": "function", "function": call} if draw(st.booleans()) else call for call in calls]
        messages.append({"role": "assistant", "content": draw(st.just("") | plain_text), "tool_calls": called})
        messages += [{"role": "tool", "content": draw(nasty_text)} for _ in calls]
        messages.append({"role": "assistant", "content": draw(plain_text)})
    tools = [{"type": "function", "function": {"name": "f0", "description": "é <b>"}}]
    return Conversation(messages, None, {"tools": tools} if draw(st.booleans()) else {})


@pytest.mark.real
@given(conversation=with_tool_calls())
@MANY
def test_qwen3_tool_calls_are_never_rejected(qwen3: TwinPair, conversation: Conversation) -> None:
    assert check_against_twin(*qwen3, conversation)
