import pytest

from hbp_prep.errors import ConfigError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.marks import free_marks, take_out
from hbp_prep.tokenization.template import BUILTIN_TEMPLATES, ChatTemplate, builtin_template

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
MESSAGES = [{"role": "user", "content": "a <b>"}, {"role": "assistant", "content": "é"}]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "mine", SPECIALS)


def test_tulu3_is_exactly_the_documented_text() -> None:
    messages = [
        {"role": "system", "content": " s"},
        {"role": "user", "content": "u\n"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "b "},
    ]
    tulu3 = ChatTemplate(builtin_template("tulu3"), "tulu3", SPECIALS)
    expected = "<|system|>\n s\n<|user|>\nu\n\n<|assistant|>\na</s>\n<|user|>\n\n<|assistant|>\nb </s>"
    assert tulu3.render(messages, {}) == expected
    assert tulu3.render(messages[:2], {}, add_generation_prompt=True).endswith("<|user|>\nu\n\n<|assistant|>\n")


def test_chatml_is_exactly_the_documented_text() -> None:
    chatml = ChatTemplate(builtin_template("chatml"), "chatml", SPECIALS)
    expected = "<|im_start|>user\na <b><|im_end|>\n<|im_start|>assistant\né<|im_end|>\n"
    assert chatml.render(MESSAGES, {}) == expected
    assert chatml.render(MESSAGES, {}, add_generation_prompt=True) == expected + "<|im_start|>assistant\n"


@pytest.mark.parametrize("name", BUILTIN_TEMPLATES)
@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "add", "arguments": {}}]},
    ],
)
def test_builtin_templates_refuse_what_they_would_drop(name: str, message: dict[str, object]) -> None:
    with pytest.raises(RowRejected, match="no form for") as caught:
        ChatTemplate(builtin_template(name), name, SPECIALS).render([*MESSAGES, message], {})
    assert caught.value.reason is Reason.TEMPLATE_ERROR


def test_helpers_of_hugging_face_templates() -> None:
    source = (
        "{%- for message in messages %}\n"
        "    {%- if loop.index > 1 %}{% break %}{% endif %}\n"
        "    {{- bos_token + message | tojson }}\n"
        "{%- endfor %}{{ tools is none }}"
    )
    assert template(source).render(MESSAGES, {}) == '<s>{"role": "user", "content": "a <b>"}True'
    assert template("{{ x | tojson(indent=1) }}").render(MESSAGES, {"x": ["é"]}) == '[\n "é"\n]'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[7].content }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ missing.x.y }}",
    ],
)
def test_failures_on_a_row_reject_the_row(source: str) -> None:
    with pytest.raises(RowRejected, match="mine: ") as caught:
        template(source).render(MESSAGES, {})
    assert caught.value.reason is Reason.TEMPLATE_ERROR


@pytest.mark.parametrize("name", ["messages", "eos_token", "add_generation_prompt"])
def test_rows_may_not_set_the_templates_own_variables(name: str) -> None:
    with pytest.raises(RowRejected, match=name):
        template("x").render(MESSAGES, {name: True})


def test_syntax_errors_name_template_and_line() -> None:
    with pytest.raises(ConfigError, match=r"chat template mine, line 3: .*endfor"):
        template("{% for m in messages %}\n\n{% endif %}")


def test_unknown_builtin_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'tulu' .*did you mean 'tulu3'"):
        builtin_template("tulu")


def test_templates_that_test_for_the_clock_fall_back() -> None:
    source = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}26 Jul 2024{% endif %}"
    assert template(source).render(MESSAGES, {}) == "26 Jul 2024"


def test_generation_blocks_give_spans() -> None:
    source = "{% for m in messages %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endfor %}"
    text, spans = template(source).render_with_generation(MESSAGES, {})
    assert (text, spans) == ("[a <b>][é]", [(1, 6), (8, 9)])
    assert template(source).render(MESSAGES, {}) == text


def test_generation_blocks_over_text_that_has_noncharacters() -> None:
    source = "{% for m in messages %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endfor %}"
    content = "".join(chr(code) for code in range(0xFDD0, 0xFDEE))
    messages = [{"role": "assistant", "content": content}]
    text, spans = template(source).render_with_generation(messages, {})
    assert (text, spans) == (f"[{content}]", [(1, 31)])
    with pytest.raises(RowRejected, match="noncharacters"):
        template(source).render_with_generation([{"role": "assistant", "content": content + "\ufdee"}], {})


def test_nested_generation_blocks_are_refused() -> None:
    source = "{% generation %}a{% generation %}b{% endgeneration %}{% endgeneration %}"
    with pytest.raises(RowRejected, match="nested") as caught:
        template(source).render_with_generation(MESSAGES, {})
    assert caught.value.reason is Reason.SPANS_UNPROVEN


def test_marks_are_taken_out_with_their_positions() -> None:
    assert take_out("\ufdd1ab\ufdd0\ufdd0c", ("\ufdd0", "\ufdd1")) == (
        "abc",
        [("\ufdd1", 0), ("\ufdd0", 2), ("\ufdd0", 2)],
    )
    assert free_marks({"a\ufdd0": ["\ufdd2"]}, 2) == ("\ufdd1", "\ufdd3")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}", "counts through more than"),
        ("{{ 'a' * 10000000000 }}", "a product is longer"),
        ("{{ 2 ** 100000000 }}", "powers are not allowed"),
    ],
)
def test_templates_that_loop_or_allocate_are_stopped(body: str, why: str) -> None:
    """Rows that do not get there are not touched."""
    template = ChatTemplate("{% if messages[0].content == 'now' %}" + body + "{% endif %}x", "t", {})
    assert template.render([{"role": "user", "content": "later"}], {}) == "x"
    with pytest.raises(RowRejected, match=why):
        template.render([{"role": "user", "content": "now"}], {})


@pytest.mark.parametrize("body", ["{{ ['a', 'b'] | random }}", "{{ lipsum() }}"])
def test_nothing_is_drawn_at_random(body: str) -> None:
    with pytest.raises((ConfigError, RowRejected), match=r"No filter named 'random'|'lipsum' is undefined"):
        ChatTemplate(body, "t", {}).render([{"role": "user", "content": "a"}], {})
