"""Long requests over whole modules, as rows in the manner of LongCite: ``id``, ``prompt``, ``response``.

A request quotes modules in full until a length drawn log-uniformly between 8K and 64K tokens is nearly reached, then
asks about them. The answer is computed from the parsed sources. Costs one tokenisation of the library, about 6 seconds
on one slow core.
"""

from collections.abc import Callable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hbp_prep.demo.chats import Row
from hbp_prep.demo.stdlib import Module

NUM_REQUESTS = 80
MIN_TOKENS = 8 * 1024
MAX_TOKENS = 64 * 1024

_SLACK_TOKENS = 256  # roles, the question, and merges that differ where texts meet
_MIN_MODULE_TOKENS = 150


def long_requests(modules: list[Module], count_tokens: Callable[[list[str]], list[int]], seed: int) -> list[Row]:
    """80 rows whose rendered chats have between ``MIN_TOKENS`` and ``MAX_TOKENS`` tokens.

    Args:
        count_tokens: Texts to their numbers of tokens.
    """
    rng = np.random.default_rng([seed, crc32(b"demo requests")])
    questions = list(_QUESTIONS.items())
    sizes = np.array(count_tokens([_quote(module) for module in modules]))
    answer_sizes = [np.array(count_tokens([answer(module) for module in modules])) for _, answer in questions]
    rows = []
    for number in range(NUM_REQUESTS):
        kind = int(rng.integers(len(questions)))
        question, answer = questions[kind]
        low, high = MIN_TOKENS + 2 * _SLACK_TOKENS, MAX_TOKENS - _SLACK_TOKENS
        target = low * (high / low) ** ((number + rng.random()) / NUM_REQUESTS)
        chosen = _fill(sizes + answer_sizes[kind], sizes >= _MIN_MODULE_TOKENS, target, rng)
        quoted = "\n\n".join(_quote(modules[index]) for index in chosen)
        answers = "\n\n".join(answer(modules[index]) for index in chosen)
        rows.append({"prompt": f"{quoted}\n\n{question}", "response": answers})
    return [
        {"id": f"python_modules-{number:03d}", **rows[index]} for number, index in enumerate(rng.permutation(len(rows)))
    ]


def _fill(sizes: NDArray[np.int64], usable: NDArray[np.bool_], target: float, rng: np.random.Generator) -> list[int]:
    """Indices of modules in random order whose sizes add up to nearly ``target``, never more.

    It ends when no usable module fits any more, so less than the smallest module's size is left unfilled.
    """
    chosen: list[int] = []
    room = target
    for index in rng.permutation(len(sizes)):
        if usable[index] and sizes[index] <= room:
            chosen.append(int(index))
            room -= float(sizes[index])
    return chosen


def _quote(module: Module) -> str:
    return f'<module name="{module.name}" file="{module.path}">\n{module.source.rstrip()}\n</module>'


def _documented_functions(module: Module) -> str:
    lines = [f"- `{function.name}`: {function.docstring.splitlines()[0]}" for function in module.functions]
    return "\n".join([f"`{module.name}`:", *(lines or ["- none with a docstring"])])


def _classes(module: Module) -> str:
    lines = [f"- `{name}`" + (f" from {', '.join(bases)}" if bases else "") for name, bases in module.classes]
    return "\n".join([f"`{module.name}`:", *(lines or ["- no public classes"])])


def _imported_modules(module: Module) -> str:
    if not module.imports:
        return f"`{module.name}` imports nothing."
    return f"`{module.name}` imports {', '.join(f'`{name}`' for name in module.imports)}."


def _sizes(module: Module) -> str:
    counts = f"{module.source.count(chr(10)) + 1} lines and {len(module.top_level)} public functions"
    if not module.functions:
        return f"`{module.name}`: {counts}."
    longest = max(module.functions, key=lambda function: function.source.count("\n"))
    return f"`{module.name}`: {counts}; its longest documented function is `{longest.name}`."


_QUESTIONS: dict[str, Callable[[Module], str]] = {
    "List the public functions of these modules that have a docstring, each with its first line.": (
        _documented_functions
    ),
    "Which public classes do these modules define, and what do they inherit from?": _classes,
    "Which modules does each of these modules import?": _imported_modules,
    "How long is each of these modules, how many public functions has it, and which is its longest one?": _sizes,
}
