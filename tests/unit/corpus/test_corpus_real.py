"""Every real corpus at hand: the right format is found, and each row comes out once, as a chat or with its reason."""

import os
from collections import Counter
from pathlib import Path

import pytest

from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import SourceSpec
from hbp_prep.errors import DataError
from hbp_prep.reasons import RowRejected

SHARED = Path(os.environ.get("HBP_SHARED") or Path(__file__).parents[3].parent / "shared")
CORPORA = SHARED / "data" / "corpora"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not CORPORA.is_dir(), reason=f"no real corpora at {CORPORA}; set HBP_SHARED"),
]

# file: (row format, rows, rejected rows)
EXPECTED = {
    "long/books_long_a/messages.jsonl": ("messages", 84, 0),
    "long/longbench_multi_news/prompt_response.jsonl": ("prompt_response", 200, 0),
    "long/longbench_passage_retrieval_zh/prompt_response.jsonl": ("prompt_response", 140, 0),
    "long/qmsum_academic_train/messages.jsonl": ("messages", 41, 0),
    "long/qmsum_committee_train/messages.jsonl": ("messages", 24, 0),
    "long/squality_train/messages.jsonl": ("messages", 50, 0),
    "short/gpteacher_codegen/codegen-instruct.json": ("alpaca", 4535, 0),
    "short/gpteacher_roleplay/roleplay-simple-deduped-roleplay-instruct.json": ("alpaca", 1923, 0),
    "short/gsm8k_train/train.jsonl": ("question_answer", 7473, 0),
    "short/llamafactory_demo/alpaca_en_demo.json": ("alpaca", 999, 0),
    "short/llamafactory_demo/alpaca_zh_demo.json": ("alpaca", 1000, 0),
    "short/llamafactory_demo/glaive_toolcall_en_demo.json": ("conversations", 300, 0),
    "short/llamafactory_demo/glaive_toolcall_zh_demo.json": ("conversations", 300, 0),
    "short/llamafactory_demo/reason_tool_use_demo_50.jsonl": ("messages", 50, 50),  # parts of type "reasoning"
    "short/llamafactory_demo/v1_sft_demo.jsonl": ("messages", 500, 0),
    "short/p3_t0_a/t0_templates.jsonl": ("prompt_response", 9000, 0),
    "short/sgd_train/messages.jsonl": ("messages", 5110, 0),
    "short/xtuner_openai_sft/openai_sft.jsonl": ("bare", 128, 0),
    "tulu3_shaped/train.parquet": ("messages", 32018, 0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_corpus(name):
    row_format, num_rows, num_rejected = EXPECTED[name]
    source = SourceSpec(name="real", paths=(str(CORPORA / name),))
    corpus, _ = scan_corpus([source])
    assert corpus.files[0].row_format == row_format
    results = [item for unit in corpus.units for item in read_unit(corpus.files[0], source, unit)]
    assert [number for number, *_ in results] == list(range(num_rows))
    reasons = Counter(result.reason for *_, result in results if isinstance(result, RowRejected))
    assert reasons.total() == num_rejected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short/llamafactory_demo/kto_en_demo.json", "preference data"),
        ("other/longcite_cof_sample/input_sample.jsonl", "Columns found: idx, context"),
        ("other/longalign_fewshots/few_shots.json", "a row that is no object"),
    ],
)
def test_what_is_no_chat_is_refused(name, message):
    with pytest.raises(DataError, match=message):
        scan_corpus([SourceSpec(name="real", paths=(str(CORPORA / name),))])
