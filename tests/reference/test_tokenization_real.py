"""Real corpora with real tokenizers: known facts about them, and a plain reimplementation of text and masks."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Conversation, Corpus, SourceSpec
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.rejected import count_rejected
from hbp_prep.tokenization.run import tokenize_corpus
from hbp_prep.tokenization.table import build_sample_table
from hbp_prep.tokenization.tokenizer import TokenizationSpec
from tests.unit.tokenization.building import deepseek_v3_twin, llama3_1_twin, load, qwen3_twin

pytestmark = pytest.mark.real
EOT = "<|eot_id|>"


def corpus_of(shared_data: Path, **globs: str) -> Corpus:
    paths = {name: tuple(map(str, sorted((shared_data / "corpora").glob(glob)))) for name, glob in globs.items()}
    return scan_corpus([SourceSpec(name=name, paths=found) for name, found in paths.items()])[0]


def conversations(corpus: Corpus, every: int) -> list[Conversation]:
    """Every ``every``-th row that can be read."""
    rows = []
    for unit in corpus.units:
        file = corpus.files[unit.file]
        selected = (unit.first_ordinal + np.arange(unit.num_rows)) % every == 0
        rows += [result for _, _, result in read_unit(file, corpus.sources[file.source], unit, selected)]
    return [row for row in rows if isinstance(row, Conversation)]


def tulu3_by_hand(tokenizer: Tokenizer, row: Conversation) -> tuple[list[int], list[bool]]:
    """Ids and mask with the Tulu 3 template, character by character."""
    text, is_target = "", []
    for number, message in enumerate(row.messages):
        content = message["content"]
        if message["role"] == "assistant":
            end = "" if number + 1 == len(row.messages) else "\n"
            pieces = [("<|assistant|>\n", False), (content + EOT, True), (end, False)]
        else:
            pieces = [(f"<|{message['role']}|>\n{content}\n", False)]
        for piece, target in pieces:
            text += piece
            is_target += [target] * len(piece)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    mask = [any(is_target[start:end]) for start, end in encoding.offsets]
    return encoding.ids, [False, *mask[1:]]


def test_every_short_row_is_accepted_with_the_known_lengths(shared_data: Path, tmp_path: Path) -> None:
    """All 32,018 rows, mean 187 tokens, longest 4,050; 539 long ones, 182 of 8K and more, 26 of 32K and more."""
    corpus = corpus_of(shared_data, short="tulu3_shaped/train.parquet", long="long/qmsum*/*.jsonl")
    spec = TokenizationSpec(tokenizer=str(shared_data / "tokenizers" / "llama3_1"), chat_template="tulu3")
    summary = tokenize_corpus(corpus, spec, folder=tmp_path / "store", seed=1)
    rejected = tmp_path / "rejected.arrow"
    table = build_sample_table(
        corpus, tmp_path / "store", seed=1, max_tokens=131_072, over_length="drop", rejected_path=rejected
    )
    assert count_rejected(rejected) == {}
    assert table.num_rows == summary.num_rows == 32_018 + 65
    short = table.num_tokens[table.source == 0]
    assert len(short) == 32_018
    assert round(float(short.mean()), 2) == 187.04
    assert short.max() == 4_050
    assert table.num_tokens[table.source == 1].max() == 36_249


def test_masks_equal_those_made_by_hand(shared_data: Path) -> None:
    corpus = corpus_of(shared_data, short="tulu3_shaped/train.parquet", long="long/*/*.jsonl")
    folder = shared_data / "tokenizers" / "llama3_1"
    tokenizer, plain = load(folder, "tulu3"), Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = conversations(corpus, 40)
    assert len(rows) > 800
    for row, result in zip(rows, tokenizer.encode_batch(rows), strict=True):
        assert isinstance(result, EncodedSample)
        ids, mask = tulu3_by_hand(plain, row)
        assert result.input_ids.tolist() == ids
        assert result.loss_mask.tolist() == mask


@pytest.mark.parametrize(
    ("name", "make_twin"), [("llama3_1", llama3_1_twin), ("qwen3", qwen3_twin), ("deepseek_v3", deepseek_v3_twin)]
)
def test_own_templates_equal_their_marked_twins(
    shared_data: Path, tmp_path: Path, name: str, make_twin: Callable[[str], str]
) -> None:
    """Text, ids and masks of real rows, with tools too; rejected are rows whose tools the template would drop."""
    short = corpus_of(shared_data, short="tulu3_shaped/train.parquet")
    with_tools = corpus_of(shared_data, tools="short/llamafactory_demo/glaive_toolcall_*.json")
    folder = shared_data / "tokenizers" / name
    tokenizer = load(folder)
    path = tmp_path / "twin.jinja"
    path.write_text(make_twin(tokenizer._renderer._template.source))
    twin = load(folder, str(path))
    rows = conversations(short, 20) + conversations(with_tools, 2)
    num_rejected: Counter[str] = Counter()
    for row, result, expected in zip(rows, tokenizer.encode_batch(rows), twin.encode_batch(rows), strict=True):
        if isinstance(result, RowRejected):
            num_rejected[result.reason] += 1
            continue
        assert isinstance(expected, EncodedSample)
        assert tokenizer.render(row) == twin.render(row)
        assert result.input_ids.tolist() == expected.input_ids.tolist()
        assert result.loss_mask.tolist() == expected.loss_mask.tolist()
    num_with_tools = sum(bool(row.template_kwargs.get("tools")) for row in rows)
    assert num_with_tools > 150
    assert num_rejected == ({} if name == "qwen3" else {Reason.TEMPLATE_ERROR: num_with_tools})
