"""Short chats about Python's standard library, as rows in the manner of Tulu 3: ``id``, ``messages``, ``source``.

Three flavours (the rows' ``source``): docstrings, language topics, code. Answers are quoted or computed from the parsed
sources, never made up. Lengths run from some tens to a few thousand tokens, most of them short, as in real mixtures.
"""

import textwrap
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np

from hbp_prep.demo.stdlib import Function, Module

Row = dict[str, Any]

NUM_DOCSTRING_CHATS = 2000
NUM_TOPIC_CHATS = 800
NUM_CODE_CHATS = 1200

_SYSTEM_TURN_SHARE = 0.2
_FOLLOW_UP_SHARE = 0.4
_SECTION_CHARS = 1500
_MAX_SNIPPET_LINES = 120
_MAX_TOPIC_TURNS = 8

_SYSTEM_TURNS = (
    "You are a helpful assistant for Python programmers.",
    "Answer from the documentation of Python's standard library. Be brief.",
    "You are a patient teacher. Quote the documentation where it says it best.",
)
_DOCSTRING_QUESTIONS = (
    "What does `{name}` do?",
    "Explain `{name}` from Python's standard library.",
    "I found `{name}` in some code. What is it for?",
    "When would I use `{name}`?",
)
_CODE_QUESTIONS = (
    "Show me the source of `{name}`.",
    "How is `{name}` implemented in Python's standard library?",
    "Here is the signature `{signature}` of `{name}`. Write the function.",
)


def short_chats(modules: list[Module], topics: dict[str, str], seed: int) -> list[Row]:
    """About 4,000 rows in shuffled order; fewer where the library or its topics are smaller."""
    rng = np.random.default_rng([seed, crc32(b"demo chats")])
    rows = [
        *_chosen(_docstring_chats(modules, rng), NUM_DOCSTRING_CHATS, rng),
        *_chosen(_topic_chats(topics, rng), NUM_TOPIC_CHATS, rng),
        *_chosen(_code_chats(modules, rng), NUM_CODE_CHATS, rng),
    ]
    return [rows[index] for index in rng.permutation(len(rows))]


def _chosen(rows: Iterator[Row], limit: int, rng: np.random.Generator) -> list[Row]:
    """At most ``limit`` of the rows, at random, in their order."""
    every = list(rows)
    keep = np.sort(rng.permutation(len(every))[:limit])
    return [every[index] for index in keep]


def _row(source: str, number: int, turns: list[str], rng: np.random.Generator) -> Row:
    """A row of alternating user and assistant turns, some with a system turn before them."""
    messages = [
        {"role": "user" if index % 2 == 0 else "assistant", "content": text} for index, text in enumerate(turns)
    ]
    if rng.random() < _SYSTEM_TURN_SHARE:
        system = _SYSTEM_TURNS[rng.integers(len(_SYSTEM_TURNS))]
        messages.insert(0, {"role": "system", "content": system})
    return {"id": f"{source}-{number:05d}", "messages": messages, "source": source}


def _docstring_chats(modules: list[Module], rng: np.random.Generator) -> Iterator[Row]:
    number = 0
    for module in modules:
        for function in module.functions:
            question = _DOCSTRING_QUESTIONS[rng.integers(len(_DOCSTRING_QUESTIONS))]
            turns = [question.format(name=function.name), function.docstring]
            if rng.random() < _FOLLOW_UP_SHARE:
                turns += ["What is its signature?", f"```python\n{function.signature}\n```"]
            if module.top_level and rng.random() < _FOLLOW_UP_SHARE / 2:
                turns += [f"Which other functions does `{module.name}` offer?", _other_functions(module, function)]
            yield _row("python_docstrings", number, turns, rng)
            number += 1


def _other_functions(module: Module, function: Function) -> str:
    own_name = function.name.rpartition(".")[2]
    others = [f"`{name}`" for name in module.top_level if name != own_name]
    return f"{', '.join(others)}." if others else f"`{module.name}` has no other public functions."


def _topic_chats(topics: dict[str, str], rng: np.random.Generator) -> Iterator[Row]:
    number = 0
    for topic, text in topics.items():
        sections = _sections(text)
        for index, section in enumerate(sections):
            part = f", part {index + 1} of {len(sections)}" if len(sections) > 1 else ""
            yield _row("python_topics", number, [f"Explain the Python topic `{topic}`{part}.", section], rng)
            number += 1
        if len(sections) > 1:
            turns = [f"Explain the Python topic `{topic}`, one part at a time.", sections[0]]
            for section in sections[1:_MAX_TOPIC_TURNS]:
                turns += ["Go on.", section]
            yield _row("python_topics", number, turns, rng)
            number += 1


def _sections(text: str) -> list[str]:
    """Paragraphs joined up to about 1,500 characters."""
    sections: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        if sections and len(sections[-1]) + len(paragraph) <= _SECTION_CHARS:
            sections[-1] += "\n\n" + paragraph
        elif paragraph.strip():
            sections.append(textwrap.dedent(paragraph).strip("\n"))
    return sections


def _code_chats(modules: list[Module], rng: np.random.Generator) -> Iterator[Row]:
    number = 0
    for module in modules:
        for function in module.functions:
            if not 3 <= function.source.count("\n") < _MAX_SNIPPET_LINES:
                continue
            question = _CODE_QUESTIONS[rng.integers(len(_CODE_QUESTIONS))]
            turns = [question.format(name=function.name, signature=function.signature)]
            turns.append(f"```python\n{function.source}\n```")
            if function.called_names and rng.random() < _FOLLOW_UP_SHARE:
                names = "\n".join(f"- `{name}`" for name in function.called_names)
                turns += ["Which functions does it call?", f"It calls:\n{names}"]
            yield _row("python_code", number, turns, rng)
            number += 1
