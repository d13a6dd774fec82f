"""Replayed templates print what Jinja prints, whatever they do with contents: recorded exactly, or not at all."""

import re
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbp_prep.errors import DataError
from hbp_prep.reasons import RowRejected
from hbp_prep.tokenization import sampling
from hbp_prep.tokenization.folder import find_template, read_tokenizer_folder
from hbp_prep.tokenization.recording import RecordableTemplate
from hbp_prep.tokenization.replay import MARKS, Replay
from hbp_prep.tokenization.stand_ins import Make, Unrecordable, joined
from hbp_prep.tokenization.template import ChatTemplate, builtin_template

# What templates do with a content `c`, `d` being another message's. The first kind must be replayed.
RECORDED = (
    "{{ c }}",
    "{{ c | trim }}|{{ c.strip() }}|{{ c.lstrip('\\n') }}|{{ c.rstrip() }}",
    "{{ 'x' + c + 'y' }}{{ 'x' ~ c ~ 1 }}",
    "{{ (' ' ~ c ~ ' ') | trim }}",
    "{% set x %} {{ c }} {% endset %}{{ x | trim }}",
    "{% macro m(t) %} {{ t }}!{% endmacro %}{{ m(c) | trim }}",
    "{% if c %}y{% else %}n{% endif %}{{ c or 'none' }}{{ c | default('e', true) }}",
    "{% if '</think>' in c %}{{ c.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ c }}{% endif %}",
    "{{ c.split('a')[0] }}|{{ c.split('a') | last }}|{{ c.split('a', 1) | first }}",
    "{{ c.startswith('a') }}{{ c.endswith(' ') }}{{ c == 'a' }}{{ c != '' }}{{ 'a' == c }}",
    "{{ c is string }}{{ c is defined }}{{ c is none }}{{ c is mapping }}{{ c is iterable }}{{ c is not number }}",
    "{{ c in ['a', 'b'] }}{{ c == 1 }}{{ c == none }}{{ c is eq 'a' }}{{ c is in ['a'] }}",
    "{{ c.replace('a', 'b') }}{{ c | string }}",
    "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content %}{% endfor %}{{ ns.t }}",
    "{{ messages[0]['content'] }}{{ messages | length }}{{ (messages | last).role }}{{ messages[::-1][0].content }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{% for m in messages[1:] %}{{ loop.index0 % 2 }}{{ m.content }}{% endfor %}",
    "{{ bos_token }}{{ c }}{{ bos_token }}",
    "{% generation %}{{ c }}{% endgeneration %}",
)
# These need not be; what matters is that nothing of a content slips through unseen.
OTHERS = (
    "{{ c | upper }}{{ c.title() }}",
    "{{ c | tojson }}",
    "{{ {'k': c} | tojson }}",
    "{{ messages | tojson }}",
    "{{ '%s|%5s' % (c, c) }}",
    "{{ '{}|{:>5}'.format(c, c) }}",
    "{{ ' {}'.format(c).strip() }}{{ '{}'.format(c) == 'a' }}{{ '%s ' % c | trim }}",
    "{{ c | length }}{% if c | length > 2 %}l{% endif %}",
    "{% for x in c %}[{{ x }}]{% endfor %}",
    "{{ c[0] }}{{ c[:2] }}{% if c[0] == 'a' %}y{% endif %}",
    "{{ c in 'abc' }}{{ 'abc'.startswith(c) }}{{ 'xay'.split(c) if c else 1 }}",
    "{{ {'a': 1, '': 2}[c] }}{{ {'a': 1}.get(c) }}",
    "{{ [c, d] | join('-') }}{{ messages | map(attribute='content') | join }}",
    "{{ messages | selectattr('content') | list | length }}{{ messages | rejectattr('content', 'eq', 'a') | first }}",
    "{{ messages | map(attribute='content') | list | first | trim }}",
    "{{ [c, d] | sort | first }}{{ [c, d] | max }}{{ c < d }}{{ c == d }}",
    "{{ c * 2 }}{{ c | e }}{{ c | urlencode }}{{ c | wordcount }}{{ c | indent }}{{ c | int }}{{ c | list | length }}",
    "{{ c | center(9) }}{{ c | replace('a', 'b') }}{{ c | truncate(3) }}{{ c | striptags }}{{ c | wordwrap(2) }}",
    "{{ c.find('a') }}{{ c.count('a') }}{{ c.isdigit() }}{{ c.splitlines() }}{{ c.split() }}{{ c.partition('a')[0] }}",
    "{{ c.removeprefix('a') }}{{ c.encode is defined }}{{ c.nothing is defined }}{{ c.nothing }}",
    "{% for m in messages %}{% if loop.changed(m.content) %}c{% endif %}{% endfor %}",
    "{% macro w() %}{{ caller() | trim }}{% endmacro %}{% call w() %} {{ c }} {% endcall %}",
    "{% filter trim %} {{ c }} {% endfilter %}",
    "{% set x = c %}{% set y %}{{ x }}{% endset %}{% if y == 'a' %}same{% endif %}{{ y | length }}",
    "{% if c is sameas 'a' %}s{% endif %}{{ c is lower }}{{ c is divisibleby 2 if false else '' }}",
    "{{ c if c | trim else 'blank' }}{{ (c | trim) == '' }}",
    "{{ [c] }}{{ c.__class__ }}{{ dict(k=c) }}",
    "{{ c.split('a') | length }}{{ c.split('a')[1] }}{{ c.split('a')[5] is defined }}",
    "{{ range(3)[c] is defined }}{{ messages[c] is defined }}{{ c.strip(d) }}{{ c.startswith(d) }}{{ d in c }}",
    "{% if c not in ns and ns.append is defined %}n{% endif %}",
    "{{ c.parts is defined }}{{ c._parts is defined }}{{ c.recorder }}{{ c.split('a').parts is defined }}",
    "{{ joiner(c)() }}{{ cycler(c, d).next() }}",
    "{{ raise_exception(c) }}",
)
HEAD = "{% set c = messages[0].content %}{% set d = messages[-1].content %}"
TEXTS = st.lists(
    st.sampled_from(
        ("a", "b", "ab", " ", "\n", "", "a a", "</think>", "<think>", "é", "1", "<b>", '"', "\ufdea0\ufdeb", "%s", "{}")
    ),
    max_size=4,
).map("".join)
ROLES = st.lists(st.sampled_from(("system", "user", "assistant", "tool")), min_size=1, max_size=4)
MANY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@lru_cache
def compiled(source: str) -> tuple[ChatTemplate, RecordableTemplate]:
    template = ChatTemplate(source, "t", {"bos_token": "<s>"})
    return template, RecordableTemplate(source, template.variables, MARKS)


def unmarked(part: str | Make) -> str | Make:
    return re.sub("|".join(MARKS), "", part) if isinstance(part, str) else part


@pytest.mark.parametrize("body", RECORDED + OTHERS)
@given(roles=ROLES, pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=4, max_size=4))
@MANY
def test_a_recording_tells_what_is_printed_for_all_that_answer_alike(
    body: str, roles: list[str], pairs: list[tuple[str, str]]
) -> None:
    template, recordable = compiled(HEAD + body)
    recorded, other = ([pair[side] for pair in pairs[: len(roles)]] for side in (0, 1))
    try:
        recording = recordable.record(tuple(roles), recorded)
    except Unrecordable:
        assert body not in RECORDED
        return
    for contents in (recorded, other):
        if all(ask(contents) is answer for ask, answer in recording.questions):
            messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
            printed = joined([unmarked(part) for part in recording.parts], contents)
            assert printed == template.render(messages, {})


def test_what_fails_is_not_recorded() -> None:
    source = "{% if messages[0].content == 'x' %}{{ raise_exception('no') }}{% endif %}"
    template = RecordableTemplate(source, {}, MARKS)
    with pytest.raises(Unrecordable) as failure:
        template.record(("user",), ["x"])
    assert [answer for _, answer in failure.value.questions] == [True]
    assert template.record(("user",), ["y"]).parts == ()


def replay_of(template: ChatTemplate) -> Replay:
    return Replay(template, lambda _messages, text: (text, []), None)


def replayed_text(replay: Replay, messages: list[dict[str, object]]) -> str | None:
    chat = replay.render(messages)
    return None if chat is None else chat.text


def text_by_jinja(template: ChatTemplate, messages: list[dict[str, object]]) -> str | None:
    """``None`` where the template refuses the messages."""
    try:
        return template.render(messages, {})
    except RowRejected:
        return None


@pytest.fixture(scope="module", params=["tulu3", "chatml", "llama3_1", "qwen3", "deepseek_v3"])
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    if request.param in ("tulu3", "chatml"):
        return ChatTemplate(builtin_template(request.param), request.param, {"bos_token": "<s>", "eos_token": "</s>"})
    shared: Path = request.getfixturevalue("shared_data")
    folder = read_tokenizer_folder(shared / "tokenizers" / request.param)
    return ChatTemplate(*find_template(folder, None), folder.special_tokens)


@pytest.mark.real
@given(rows=st.lists(st.tuples(ROLES, st.lists(TEXTS, min_size=4, max_size=4)), min_size=1, max_size=12))
@MANY
def test_real_templates_are_replayed(template: ChatTemplate, rows: list[tuple[list[str], list[str]]]) -> None:
    """Rows through one replay, in order: earlier ones leave the paths that later ones take."""
    replay = replay_of(template)
    for roles, texts in rows:
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        assert replayed_text(replay, messages) == text_by_jinja(template, messages)


@st.composite
def messages_with_more(draw: st.DrawFn) -> list[dict[str, object]]:
    """Reasoning, flags, and keys in any order."""
    messages: list[dict[str, object]] = []
    for role in draw(ROLES):
        keys: dict[str, object] = {"role": role, "content": draw(TEXTS)}
        if draw(st.booleans()):
            keys["reasoning_content"] = draw(TEXTS)
        keys |= draw(st.sampled_from(({}, {"train": True}, {"train": False}, {"weight": 0}, {"weight": 1})))
        messages.append(dict(draw(st.permutations(list(keys.items())))))
    return messages


@pytest.mark.real
@given(rows=st.lists(messages_with_more(), min_size=1, max_size=12))
@MANY
def test_reasoning_and_flags_are_replayed(template: ChatTemplate, rows: list[list[dict[str, object]]]) -> None:
    replay = replay_of(template)
    for messages in rows:
        expected = text_by_jinja(template, messages)
        if not template.reads_reasoning and any("reasoning_content" in message for message in messages):
            expected = None
        assert replayed_text(replay, messages) == expected


def test_values_of_flags_are_told_apart() -> None:
    replay = replay_of(ChatTemplate("{{ messages[0].weight }}{{ messages[0].content }}", "t", {}))
    for weight in (1, True, 0, False, 1):
        chat = replay.render([{"role": "user", "content": "a", "weight": weight}])
        assert chat is not None
        assert chat.text == f"{weight}a"
    assert replay.render([{"role": "user", "content": "a", "weight": 1.0}]) is None


def test_a_sampled_row_that_differs_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{{ messages[0].content }}", "t", {})
    replay = replay_of(template)
    row = [{"role": "user", "content": "a"}]
    assert replay.render(row) is not None
    monkeypatch.setattr(sampling, "_ONE_IN", 1)
    monkeypatch.setattr(ChatTemplate, "render", lambda *_: "b")
    with pytest.raises(DataError, match="printed otherwise"):
        replay.render(row)


def test_paths_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbp_prep.tokenization.replay._MOST_PARTS", 20)
    replay = replay_of(ChatTemplate("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}", "t", {}))
    for count in (*range(1, 40), *range(1, 40)):
        messages = [{"role": "user", "content": str(number)} for number in range(count)]
        chat = replay.render(messages)
        assert chat is not None
        assert chat.text == "".join(f"user{number}" for number in range(count))
        assert replay._num_parts < 120
