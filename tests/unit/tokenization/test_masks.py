"""Loss masks by hand, one token a byte: what is trained in each kind of conversation that went wrong elsewhere."""

# ruff: noqa: RUF001 (characters of many bytes are the point)

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from hbp_prep.errors import ConfigError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.encoding import mask_by_chars
from hbp_prep.tokenization.tokenizer import ChatTokenizer
from tests.unit.tokenization.building import EOS, chat, encode, load, trained_text, write_folder

WithTemplate = Callable[..., ChatTokenizer]

TWO_TURNS = chat(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
# Roles as they are, a blank, the content; every turn ends with the eos token.
PLAIN = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def rejection(tokenizer: ChatTokenizer, conversation: object) -> RowRejected:
    (result,) = tokenizer.encode_batch([conversation])  # type: ignore[list-item]
    assert isinstance(result, RowRejected)
    return result


def test_golden_ids_and_mask(tulu3: ChatTokenizer) -> None:
    """Pitfalls 3, 9: the first answer token and the stop token are targets, nothing else is."""
    sample = encode(tulu3, chat(("user", "hi"), ("assistant", "yo"), ("user", "h"), ("assistant", "é")))
    texts = tulu3.token_texts(sample.input_ids.tolist())
    user, assistant = list("<|user|>\n"), list("<|assistant|>\n")
    assert texts == [*user, *"hi\n", *assistant, *"yo", EOS, "\n", *user, *"h\n", *assistant, "", "é", EOS]
    assert sample.loss_mask.tolist() == (
        [False] * (9 + 3 + 14) + [True, True, True] + [False] * (1 + 9 + 2 + 14) + [True, True, True]
    )
    assert sample.input_ids.dtype == np.int32
    assert sample.loss_mask.dtype == np.bool_


def test_every_turn_or_the_last(folder: Path, tulu3: ChatTokenizer) -> None:
    """Pitfall 6."""
    assert trained_text(tulu3, TWO_TURNS, "|") == f"one{EOS}|two{EOS}"
    assert trained_text(load(folder, "tulu3", loss_on="last"), TWO_TURNS, "|") == f"two{EOS}"


@pytest.mark.parametrize("off", [{"train": False}, {"weight": 0}])
def test_turns_that_the_row_switches_off(folder: Path, tulu3: ChatTokenizer, off: dict[str, object]) -> None:
    first = {"role": "assistant", "content": "one", **off}
    row = chat(("user", "q"), first, ("user", "r"), ("assistant", "two"))
    assert trained_text(tulu3, row) == f"two{EOS}"
    assert rejection(tulu3, chat(("user", "q"), first)).reason is Reason.NO_LOSS_TOKENS
    last = load(folder, "tulu3", loss_on="last")
    assert rejection(last, chat(("assistant", "one"), ("user", "q"), first)).reason is Reason.NO_LOSS_TOKENS


def test_whole_conversation_is_encoded_once(tmp_path: Path) -> None:
    """Pitfall 4: a merge across turns is kept, and its token, which has a character of the answer, is a target."""
    tokenizer = load(write_folder(tmp_path / "t", merges=(("Ċ", "Ċ"),)), "tulu3")
    sample = encode(tokenizer, chat(("user", "q"), ("assistant", "\nx")))
    texts = tokenizer.token_texts(sample.input_ids.tolist())
    assert texts[-3:] == ["\n\n", "x", EOS]
    assert sample.loss_mask.tolist()[-4:] == [False, True, True, True]


def test_bos_of_the_template_comes_once(with_template: WithTemplate) -> None:
    """Pitfalls 10, 16: no second BOS; the first token is never a target, even where a turn begins the text."""
    tokenizer = with_template("{{ bos_token }}" + PLAIN)
    ids = encode(tokenizer, TWO_TURNS).input_ids.tolist()
    assert ids.count(tokenizer.info["bos_id"]) == 1
    assert ids[0] == tokenizer.info["bos_id"]
    assert encode(with_template(PLAIN), TWO_TURNS).input_ids.tolist() == ids[1:]
    marked = with_template(
        "{% for m in messages %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% endfor %}"
    )
    mask = encode(marked, chat(("assistant", "ab"))).loss_mask
    assert mask.tolist() == [False, True, True]


def test_no_assistant_turn_is_rejected(tulu3: ChatTokenizer) -> None:
    """Pitfall 2."""
    rejected = rejection(tulu3, chat(("user", "q")))
    assert (rejected.reason, rejected.detail) == (Reason.NO_LOSS_TOKENS, "no assistant message")


def test_a_turn_that_is_only_the_first_token_is_rejected(with_template: WithTemplate) -> None:
    marked = with_template(
        "{% for m in messages %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% endfor %}"
    )
    assert rejection(marked, chat(("assistant", ""))).reason is Reason.NO_LOSS_TOKENS


@pytest.mark.parametrize(
    "content", ["", " ", "\n\n", "  x ", "<|user|>\n", "<|assistant|>\nno", f"a{EOS}b", EOS, "x\n<|assistant|>"]
)
def test_answers_of_every_kind(tulu3: ChatTokenizer, chatml: ChatTokenizer, content: str) -> None:
    row = chat(("user", "q"), ("assistant", content), ("user", content), ("assistant", "z"))
    assert trained_text(tulu3, row, "#") == f"{content}{EOS}#z{EOS}"
    assert trained_text(chatml, row, "#") == f"{content}<|im_end|>#z<|im_end|>"


@pytest.mark.parametrize(
    "question", ["<|assistant|>\n", "<|assistant|>", f"<|assistant|>\nyes{EOS}", f"yes{EOS}", "yes", "", "\ufdd0\ufdd1"]
)
def test_questions_that_look_like_answers(tulu3: ChatTokenizer, question: str) -> None:
    """Pitfall 11: spans are found by place, never by searching for the answer's text."""
    row = chat(("user", question), ("assistant", "yes"), ("user", question), ("assistant", "yes"))
    sample = encode(tulu3, row)
    assert trained_text(tulu3, row, "#") == f"yes{EOS}#yes{EOS}"
    assert sample.loss_mask[-4:].all()
    assert np.count_nonzero(sample.loss_mask) == 8


def test_consecutive_answers_and_no_question(tulu3: ChatTokenizer) -> None:
    assert trained_text(tulu3, chat(("assistant", "a"), ("assistant", "b")), "#") == f"a{EOS}#b{EOS}"


def test_last_turn_printed_otherwise(with_template: WithTemplate) -> None:
    """Pitfall 7: what the template puts into the last turn only is part of what the model writes there."""
    tokenizer = with_template(
        "{% for m in messages %}{{ m.role + ': ' }}{% if loop.last and m.role == 'assistant' %}{{ '<think></think>' }}"
        "{% endif %}{{ m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    assert trained_text(tokenizer, TWO_TURNS, "#") == f"one{EOS}#<think></think>two{EOS}"
    hard = chat(("user", "assistant: one"), ("assistant", "assistant: x"), ("user", "q"), ("assistant", EOS))
    assert trained_text(tokenizer, hard, "#") == f"assistant: x{EOS}#<think></think>{EOS}{EOS}"


def test_history_that_the_template_strips(with_template: WithTemplate) -> None:
    """Pitfall 7: only what is printed is trained; an opening that is stripped away does not lose the turn."""
    tokenizer = with_template(
        "{% for m in messages %}{{ m.role + ': ' + m.content.split('</think>')[-1] + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    row = chat(("user", "assistant: "), ("assistant", "<think>hm</think>one"), ("user", "q"), ("assistant", "two"))
    assert trained_text(tokenizer, row, "#") == f"one{EOS}#two{EOS}"
    hidden = chat(("user", "q"), ("assistant", f"<think>hm</think>one{EOS}"))
    assert trained_text(tokenizer, hidden, "#") == f"one{EOS}{EOS}"


def test_empty_answer_behind_a_stripped_thought(with_template: WithTemplate) -> None:
    """White space that the template strips together with the thought."""
    tokenizer = with_template(PLAIN.replace("m.content", "m.content.split('</think>')[-1].lstrip('\\n')"))
    row = chat(("user", "q"), ("assistant", "<think>hm</think>\n\n"))
    assert trained_text(tokenizer, row) == EOS


def test_illegal_prefixes_are_never_rendered(with_template: WithTemplate) -> None:
    """Pitfall 8: the template refuses conversations without a user turn."""
    tokenizer = with_template(
        "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}{{ raise_exception('no user') }}"
        "{% endif %}" + PLAIN
    )
    assert trained_text(tokenizer, chat(("system", "s"), ("user", "q"), ("assistant", "a"))) == f"a{EOS}"
    assert rejection(tokenizer, chat(("assistant", "a"))).reason is Reason.TEMPLATE_ERROR


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}", "no generation prompt"),
        (PLAIN.replace(" + eos_token", ""), "does not end assistant turns with '<|end|>'"),
        (PLAIN.replace("m.content", "(m.content | upper)"), None),
        (PLAIN.replace("m.content", "(m.content | length | string)"), "does not print the answers"),
        (PLAIN.replace("m.role + ': '", "m.role + '= '"), "does not open every assistant turn"),
        (PLAIN.replace("+ eos_token", "+ (eos_token if loop.last else '')"), "does not end assistant turns"),
    ],
)
def test_underivable_templates_are_refused_by_name(with_template: WithTemplate, template: str, why: str | None) -> None:
    """Pitfall 1: neither all ones nor all zeros."""
    if why is None:
        assert trained_text(with_template(template), TWO_TURNS, "#") == f"ONE{EOS}#TWO{EOS}"
        return
    with pytest.raises(ConfigError, match=r"chat template test\.jinja: .*generation") as caught:
        with_template(template)
    assert why in str(caught.value)


def test_templates_that_demand_the_date_are_refused(with_template: WithTemplate) -> None:
    with pytest.raises(ConfigError, match=r"test\.jinja asks for today's date .* fixed date"):
        with_template("{{ strftime_now('%d %b %Y') }}" + PLAIN)


def test_templates_that_fail_on_any_chat_are_refused(with_template: WithTemplate) -> None:
    with pytest.raises(ConfigError, match=r"fails on a plain conversation: .*nothing works"):
        with_template("{{ raise_exception('nothing works') }}")


def test_stop_token_that_is_not_the_eos_token(tmp_path: Path) -> None:
    """A base model's tokenizer with a ChatML template: turns end with <|im_end|>, eos is another token."""
    chatml = load(write_folder(tmp_path / "t"), "chatml")
    assert trained_text(chatml, TWO_TURNS, "#") == "one<|im_end|>#two<|im_end|>"


def marked(inside: str, behind: str) -> str:
    return (
        "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content"
        + inside
        + " }}{% endgeneration %}"
        + behind
        + "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )


@pytest.mark.parametrize(
    "template", [marked(" + eos_token", "\n"), marked("", "{{ eos_token }}"), marked(" + eos_token + '\n'", "")]
)
def test_generation_marks_are_used_and_hold_the_stop_token(with_template: WithTemplate, template: str) -> None:
    """Pitfall 3: a stop token right behind the block belongs to it."""
    trained = trained_text(with_template(template), TWO_TURNS, "#")
    assert trained.replace("\n", "") == f"one{EOS}#two{EOS}"
    assert trained_text(with_template(template, loss_on="last"), TWO_TURNS).strip() == f"two{EOS}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (marked("", ""), "leave out the stop token"),
        (marked("", " {{ eos_token }}"), "leave out the stop token"),
        (marked(" + eos_token", "").replace("m.role == 'assistant'", "loop.last"), "leave out assistant turns"),
    ],
)
def test_generation_marks_that_leave_something_out_are_refused(
    with_template: WithTemplate, template: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        with_template(template)


TOOLS = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}{{ m.role + ': ' + (m.content or '') }}"
    "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}{{ '[' + f.name + ' ' }}"
    "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}]{% endfor %}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.mark.parametrize("content", [None, "", "let me see"])
@pytest.mark.parametrize("arguments", [{"x": "é<"}, '{"x": "é<"}'])
@pytest.mark.parametrize("nested", [True, False])
def test_tool_calls(with_template: WithTemplate, content: str | None, arguments: object, nested: bool) -> None:
    """Pitfall 20: arguments as a dictionary or a string, content null, empty or there; all of the turn is trained."""
    call = {"name": "find", "arguments": arguments}
    turn = {"role": "assistant", "content": content, "tool_calls": [{"function": call} if nested else call] * 2}
    row = chat(("user", "q"), turn, ("tool", "7"), ("assistant", "seven"))
    printed = '[find {"x": "é<"}]' * 2
    assert trained_text(with_template(TOOLS), row, "#") == f"{content or ''}{printed}{EOS}#seven{EOS}"


# As DeepSeek-V3: the answer to a tool's output stands right behind it, without the header of other answers.
AFTER_TOOL = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '[' + m.content + ']=>' }}"
    "{% elif m.role == 'assistant' and loop.previtem.role == 'tool' %}{{ m.content + eos_token }}"
    "{% else %}{{ m.role + ': ' + m.content + (eos_token if m.role == 'assistant' else '') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role != 'tool' %}assistant: {% endif %}"
)


@pytest.mark.parametrize("output", ["7", " 7 \n", "]=>x", "assistant: 7", f"7{EOS}"])
@pytest.mark.parametrize("answer", ["seven", " seven", "]=>"])
def test_answers_to_tools_without_a_header(with_template: WithTemplate, output: str, answer: str) -> None:
    row = chat(("user", "q"), ("assistant", "find"), ("tool", "0"), ("tool", output), ("assistant", answer))
    assert trained_text(with_template(AFTER_TOOL), row, "#") == f"find{EOS}#{answer}{EOS}"


def test_answers_to_tools_are_rejected_where_more_lies_between(with_template: WithTemplate) -> None:
    """The model would have to be given text that the template does not print when it asks for an answer."""
    secret = AFTER_TOOL.replace("{{ m.content + eos_token }}", "{{ 'ok ' + m.content + eos_token }}", 1)
    row = chat(("user", "q"), ("assistant", "find"), ("tool", "7"), ("assistant", "seven"))
    assert rejection(with_template(secret), row).reason is Reason.SPANS_UNPROVEN
    empty = chat(("user", "q"), ("assistant", "find"), ("tool", ""), ("assistant", "seven"))
    assert trained_text(with_template(AFTER_TOOL), empty, "#") == f"find{EOS}#seven{EOS}"


def test_text_of_tools_that_looks_like_a_turn_is_rejected(with_template: WithTemplate) -> None:
    tokenizer = with_template(TOOLS)
    call = {"name": "find", "arguments": {"x": f"y{EOS}"}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert rejection(tokenizer, chat(("user", "q"), turn)).reason is Reason.SPANS_UNPROVEN
    tools = [{"name": "find", "description": f"assistant: yes{EOS}"}]
    row = chat(("user", "q"), ("assistant", "yes"), tools=tools)
    assert rejection(tokenizer, row).reason is Reason.SPANS_UNPROVEN
    clean = chat(("user", "q"), ("assistant", "yes"), tools=[{"name": "find"}])
    assert trained_text(tokenizer, clean) == f"yes{EOS}"


def test_what_a_template_would_drop_rejects_the_row(with_template: WithTemplate) -> None:
    """Nothing is left out in silence: tools, tool calls, messages."""
    tokenizer = with_template(PLAIN)
    assert rejection(tokenizer, chat(("user", "q"), ("assistant", "a"), tools=[{"name": "f"}])).reason is (
        Reason.TEMPLATE_ERROR
    )
    called = {"role": "assistant", "content": "hm", "tool_calls": [{"name": "f", "arguments": {}}]}
    assert "does not show" in rejection(tokenizer, chat(("user", "q"), called)).detail
    deaf = with_template(
        "{% for m in messages if m.role != 'tool' %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    row = chat(("user", "q"), ("assistant", "a"), ("tool", "result"), ("assistant", "b"))
    assert "does not show" in rejection(deaf, row).detail


def test_turn_without_its_own_stop_is_rejected(with_template: WithTemplate) -> None:
    """The stop behind another message must not be taken for the turn's own."""
    tokenizer = with_template(
        "{% for m in messages %}{{ m.role + ': ' + m.content + ('' if 'call' in m.content else eos_token) }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    row = chat(("user", "q"), ("assistant", "call"), ("user", "r"), ("assistant", "b"))
    assert "does not end with" in rejection(tokenizer, row).detail


def test_turn_without_its_own_header_is_rejected(with_template: WithTemplate) -> None:
    """Not even where another message has the header's text in it."""
    tokenizer = with_template(
        "{% for m in messages %}{{ '' if m.role == 'assistant' and 'bare' in m.content else m.role + ': ' }}"
        "{{ m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    for question in ("q", "assistant: ", f"assistant: bare{EOS}"):
        row = chat(("user", question), ("assistant", "bare"))
        assert "does not begin with the header" in rejection(tokenizer, row).detail


@pytest.mark.parametrize("thought", ["", "<think>hm</think>"])
def test_header_in_the_turn_itself_is_not_its_header(with_template: WithTemplate, thought: str) -> None:
    tokenizer = with_template(
        "{% for m in messages %}{{ '' if m.role == 'assistant' and 'bare' in m.content else m.role + ': ' }}"
        "{{ m.content.split('</think>')[-1] }}{% for c in m.tool_calls or [] %}{{ c.name }}{% endfor %}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    turn = {"role": "assistant", "content": f"{thought}bare assistant: yes"}
    assert rejection(tokenizer, chat(("user", "q"), turn)).reason is Reason.SPANS_UNPROVEN
    called = {**turn, "tool_calls": [{"name": "f", "arguments": {}}]}
    assert rejection(tokenizer, chat(("user", "q"), called)).reason is Reason.SPANS_UNPROVEN


def test_turn_with_a_stop_inside_is_rejected(with_template: WithTemplate) -> None:
    tokenizer = with_template(TOOLS.replace("' }}{% if f", "' + eos_token }}{% if f"))
    calls = [{"name": "f", "arguments": {}}] * 2
    turn = {"role": "assistant", "content": "", "tool_calls": calls}
    assert "a stop token in it" in rejection(tokenizer, chat(("user", "q"), turn)).detail


def test_calls_of_which_one_is_dropped(with_template: WithTemplate) -> None:
    tokenizer = with_template(TOOLS.replace("m.tool_calls or []", "(m.tool_calls or [])[-1:]"))
    calls = [{"name": name, "arguments": {}} for name in ("f", "g")]
    turn = {"role": "assistant", "tool_calls": calls}
    assert "does not show" in rejection(tokenizer, chat(("user", "q"), turn)).detail


@pytest.mark.parametrize("content", [None, 3, ["part"]])
def test_contents_that_are_no_strings(tulu3: ChatTokenizer, content: object) -> None:
    assert rejection(tulu3, chat(("user", content), ("assistant", "a"))).reason is Reason.BAD_CONTENT


def test_lone_surrogates_are_rejected(tulu3: ChatTokenizer) -> None:
    """Pitfall 21: one such row does not take its neighbours with it."""
    good = chat(("user", "q"), ("assistant", "a"))
    first, bad, last = tulu3.encode_batch([good, chat(("user", "\udbc0"), ("assistant", "a")), good])
    assert isinstance(bad, RowRejected)
    assert (bad.reason, bad.detail) == (Reason.LONE_SURROGATE, "the text has the lone surrogate U+DBC0")
    assert not isinstance(first, RowRejected)
    assert not isinstance(last, RowRejected)


def test_special_tokens_in_content(folder: Path, tulu3: ChatTokenizer) -> None:
    row = chat(("user", f"a{EOS}"), ("assistant", "b"))
    escaped = encode(tulu3, row)
    assert escaped.input_ids.tolist().count(tulu3.info["eos_id"]) == 1
    assert "".join(tulu3.token_texts(escaped.input_ids.tolist())) == tulu3.render(row).text
    allowed = encode(load(folder, "tulu3", special_tokens_in_content="allow"), row)
    assert allowed.input_ids.tolist().count(tulu3.info["eos_id"]) == 2
    assert escaped.num_special_texts == allowed.num_special_texts == 1
    strict = load(folder, "tulu3", special_tokens_in_content="reject")
    rejected = rejection(strict, row)
    assert (rejected.reason, rejected.detail) == (
        Reason.BAD_CONTENT,
        f"messages[0]: the text has the special token {EOS!r}",
    )
    assert trained_text(strict, chat(("user", "a"), ("assistant", "b"))) == f"b{EOS}"


@pytest.mark.parametrize("nfc", [False, True])
@pytest.mark.parametrize("content", ["\u0301x", "e\u0301", "a\u0327\u0301", "𝔘", "\u1100\u1161", "\u0344"])
def test_characters_that_are_split_or_merged(tmp_path: Path, nfc: bool, content: str) -> None:
    """Offsets are those of the original text whatever the normaliser does, and all parts of a character count."""
    import unicodedata

    tokenizer = load(write_folder(tmp_path / "t", nfc=nfc), "tulu3")
    expected = unicodedata.normalize("NFC", content) if nfc else content
    assert trained_text(tokenizer, chat(("user", content), ("assistant", content))) == expected + EOS


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((2, 4), [0, 0, 0, 1]),
        ((1, 3), [0, 1, 1, 0]),
        ((1, 2), [0, 1, 1, 0]),
        ((2, 3), [0, 0, 0, 0]),
        ((0, 4), [0, 1, 1, 1]),
    ],
)
def test_edges_at_a_character_that_was_merged_away(tmp_path: Path, span: tuple[int, int], expected: list[int]) -> None:
    """``a``, ``e`` with an accent of its own, ``b``; the middle two become one character of two bytes."""
    tokenizer = Tokenizer.from_file(str(write_folder(tmp_path / "t", nfc=True) / "tokenizer.json"))
    encoding = tokenizer.encode("ae\u0301b", add_special_tokens=False)
    assert mask_by_chars(np.array(encoding.offsets), [span]).tolist() == [bool(flag) for flag in expected]


def test_batches_keep_order_and_do_not_change_results(tulu3: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [chat(("user", "q" * n), ("assistant", "a" * (n % 5))) for n in range(30)]
    whole = tulu3.encode_batch(rows)
    monkeypatch.setattr("hbp_prep.tokenization.encoding.BATCH_CHARS", 100)
    for one, other in zip(whole, tulu3.encode_batch(rows), strict=True):
        assert not isinstance(one, RowRejected)
        assert not isinstance(other, RowRejected)
        assert one.input_ids.tolist() == other.input_ids.tolist()
        assert one.loss_mask.tolist() == other.loss_mask.tolist()
