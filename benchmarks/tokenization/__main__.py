"""Tokenisation on the real mix, side by side in one run: files on disk to the finished token store, against others.

    HBP_SHARED=/path/to/shared python -m benchmarks.tokenization [--tokenizer llama3_1|qwen3|deepseek_v3]
        [--workers 2] [--repeats 3] [--times 1] [--hf-rows 8000] [--json]

The others: ``tokenizers.encode_batch_fast`` on the same rendered texts, already in memory, on the same cores (its own
threads); and ``datasets.map(num_proc=...)`` over transformers' ``apply_chat_template`` with assistant masks, the same
template, on every n-th row. Times are the best of ``--repeats``, taken in turn, with tokenizers loaded and workers
started before (``first_seconds``: hbp-prep with all that, and the proof of its backend); of ``datasets.map`` the time
of an eighth of the rows is taken off, and with it the start of its processes. Throughput counts the rendered texts'
bytes. ``--times N`` repeats every source N times (for peak memory, which is that of the largest worker).
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hbp_prep.corpus.read import read_unit
from hbp_prep.corpus.scan import scan_corpus
from hbp_prep.corpus.types import Conversation, Corpus, SourceSpec
from hbp_prep.engines.local import LocalEngine
from hbp_prep.reasons import RowRejected
from hbp_prep.tokenization.run import TokenizationSummary, tokenize_corpus
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec

ROOT = Path(__file__).parents[2]
TEMPLATES = {"llama3_1": "tulu3", "qwen3": None, "deepseek_v3": None}
TWINS = ROOT / "tests/reference/templates"
"""The same templates with ``{% generation %}`` blocks, which transformers needs for masks."""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", choices=TEMPLATES, default="llama3_1")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--hf-rows", type=int, default=8000, help="rows for transformers; 0 leaves it out")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    options = parser.parse_args()
    data = Path(os.environ.get("HBP_SHARED", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        sys.exit(f"no real corpora at {data}; set HBP_SHARED")
    os.environ["RAYON_NUM_THREADS"] = str(options.workers)
    result = measure(data, options)
    for name, value in result.items():
        print(f"{name:>28}  {value:,.2f}" if isinstance(value, float) else f"{name:>28}  {value}")
    if options.json:
        print(json.dumps(result))


def measure(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All sides, in turn."""
    sources = []
    for number in range(options.times):
        sources.append(SourceSpec(name=f"tulu3-{number}", paths=(str(data / "corpora/tulu3_shaped/*.parquet"),)))
        sources.append(SourceSpec(name=f"long-{number}", paths=(str(data / "corpora/long/*/*.jsonl"),)))
    corpus, _ = scan_corpus(sources)
    spec = TokenizationSpec(
        tokenizer=str(data / "tokenizers" / options.tokenizer),
        chat_template=TEMPLATES[options.tokenizer],
        backend=options.backend,
    )
    tokenizer = ChatTokenizer.load(spec)
    conversations, texts = rendered(corpus, tokenizer)
    num_bytes = sum(len(text.encode()) for text in texts)
    bare = Tokenizer.from_file(str(data / "tokenizers" / options.tokenizer / "tokenizer.json"))
    ours, reference = [], []
    summaries: list[TokenizationSummary] = []
    with tempfile.TemporaryDirectory() as folder, LocalEngine(options.workers) as engine:
        for number in range(options.repeats + 1):
            out = Path(folder) / str(number)
            out.mkdir()
            ours.append(seconds(lambda out=out: summaries.append(store(corpus, tokenizer, out, engine))))
            if number:
                reference.append(seconds(lambda: encode_all(bare, texts)))
        peak_worker_mb = max(map(peak_mb, multiprocessing.active_children()))
    summary = summaries[-1]
    best, best_reference = min(ours[1:]), min(reference)
    result: dict[str, Any] = {
        "tokenizer": options.tokenizer,
        "backend": summary.backend,
        "workers": options.workers,
        "num_rows": summary.num_accepted,
        "num_tokens": summary.num_tokens,
        "text_mb": num_bytes / 1e6,
        "first_seconds": ours[0],
        "seconds": best,
        "mb_per_second": num_bytes / 1e6 / best,
        "tokens_per_second": summary.num_tokens / best,
        "tokenizers_seconds": best_reference,
        "times_tokenizers": best_reference / best,
        "peak_worker_mb": peak_worker_mb,
    }
    if options.hf_rows:
        step = max(1, len(conversations) // options.hf_rows)
        hf_seconds, hf_bytes = hf_map(spec, conversations[::step], texts[::step], options.workers)
        start_seconds, start_bytes = hf_map(spec, conversations[:: 8 * step], texts[:: 8 * step], options.workers)
        hf_seconds, hf_bytes = hf_seconds - start_seconds, hf_bytes - start_bytes
        result |= {
            "hf_map_mb_per_second": hf_bytes / 1e6 / hf_seconds,
            "times_hf_map": hf_seconds / hf_bytes * num_bytes / best,
        }
    return result


def rendered(corpus: Corpus, tokenizer: ChatTokenizer) -> tuple[list[Conversation], list[str]]:
    """All rows that can be used, and their texts."""
    conversations, texts = [], []
    for unit in corpus.units:
        file = corpus.files[unit.file]
        for _, _, item in read_unit(file, corpus.sources[file.source], unit):
            if isinstance(item, RowRejected):
                continue
            try:
                texts.append(tokenizer.render(item).text)
            except RowRejected:
                continue
            conversations.append(item)
    return conversations, texts


def store(corpus: Corpus, tokenizer: ChatTokenizer, out: Path, engine: LocalEngine) -> TokenizationSummary:
    """hbp-prep: the finished token store."""
    return tokenize_corpus(corpus, tokenizer.spec, folder=out, seed=0, tokenizer=tokenizer, map_tasks=engine.map)


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> None:
    """The bare library."""
    for start in range(0, len(texts), 1000):
        tokenizer.encode_batch_fast(texts[start : start + 1000], add_special_tokens=False)


def hf_map(
    spec: TokenizationSpec, conversations: list[Conversation], texts: list[str], num_proc: int
) -> tuple[float, int]:
    """Seconds and rendered bytes of today's usual way."""
    from datasets import Dataset, disable_caching, disable_progress_bars
    from transformers import PreTrainedTokenizerFast

    disable_caching()
    disable_progress_bars()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(spec.tokenizer)
    template = (TWINS / f"{spec.chat_template or Path(spec.tokenizer).name}.jinja").read_text("utf-8")
    rows = Dataset.from_list(
        [
            {"messages": [{"role": m["role"], "content": m["content"]} for m in conversation.messages]}
            for conversation in conversations
        ]
    )

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        found = tokenizer.apply_chat_template(
            row["messages"],
            chat_template=template,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        return {"input_ids": found["input_ids"], "mask": found["assistant_masks"]}

    taken = seconds(lambda: rows.map(encode, num_proc=num_proc, remove_columns=["messages"]))
    return taken, sum(len(text.encode()) for text in texts)


def peak_mb(worker: multiprocessing.process.BaseProcess) -> float:
    """The most memory that a worker has held; 0 where there is no /proc."""
    status = Path(f"/proc/{worker.pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def seconds(work: Callable[[], object]) -> float:
    """Wall time."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
