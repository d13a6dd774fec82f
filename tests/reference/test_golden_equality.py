"""Every row of the real corpora: ids and masks equal transformers' own, by templates that say what the model writes.

``templates/`` holds a twin of each template, written from its documented format with ``{% generation %}`` around what
is trained, the stop token included. Our side has the real template, which has no such marks. Differences that are right
are counted, and nothing else may differ:

- rows with tools under a template that does not print them: rejected here; transformers drops the tools in silence.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from hbp_prep.corpus.types import Conversation
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec
from tests.reference.real_rows import every_conversation

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra: dev)")

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEMPLATES = Path(__file__).parent / "templates"
BATCH_ROWS = 256
WITH_TOOLS = {
    ("glaive_toolcall_en_demo.json", Reason.TEMPLATE_ERROR): 191,
    ("glaive_toolcall_zh_demo.json", Reason.TEMPLATE_ERROR): 200,
}
Row = tuple[str, int, Conversation]


def their_tokenizer(folder: Path) -> "transformers.PreTrainedTokenizerFast":
    """The very tokenizer.json, with the texts of the configuration."""
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    texts = {
        name: value["content"] if isinstance(value, dict) else value
        for name in ("bos_token", "eos_token")
        if (value := config.get(name))
    }
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **texts)


def theirs(tokenizer: "transformers.PreTrainedTokenizerFast", twin: str, row: Conversation) -> tuple[list, list]:
    encoded = tokenizer.apply_chat_template(
        row.messages,
        chat_template=twin,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
        **row.template_kwargs,
    )
    return encoded["input_ids"], encoded["assistant_masks"]


def batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


@pytest.mark.parametrize(
    ("name", "template"),
    [("llama3_1", "tulu3"), ("llama3_1", "llama3_1"), ("qwen3", "qwen3"), ("deepseek_v3", "deepseek_v3")],
)
def test_ids_and_masks_equal_transformers(shared_data: Path, name: str, template: str) -> None:
    folder = shared_data / "tokenizers" / name
    spec = TokenizationSpec(
        tokenizer=str(folder),
        chat_template="tulu3" if template == "tulu3" else None,
        special_tokens_in_content="allow",
    )
    ours = ChatTokenizer.load(spec)
    tokenizer, twin = their_tokenizer(folder), (TEMPLATES / f"{template}.jinja").read_text("utf-8")
    rejected: Counter[tuple[str, str]] = Counter()
    num_equal = 0
    for batch in batches(every_conversation(shared_data)):
        for (file, number, row), result in zip(batch, ours.encode_batch([row for *_, row in batch]), strict=True):
            if isinstance(result, RowRejected):
                rejected[file, result.reason] += 1
                continue
            ids, mask = theirs(tokenizer, twin, row)
            assert result.input_ids.tolist() == ids, f"{file}, row {number}"
            assert result.loss_mask.tolist() == [bool(value) for value in mask], f"{file}, row {number}"
            num_equal += 1
    # Rows with tools under templates that would not print them.
    assert rejected == ({} if template == "qwen3" else WITH_TOOLS)
    assert num_equal > 63_000
