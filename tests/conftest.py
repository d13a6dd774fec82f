"""What many tests share: a tiny corpus with its own tokenizer, and the place of the real corpora."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<|end|>"
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'assistant' %}"
    "{{ '<|assistant|>\\n' + message.content + eos_token }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% else %}{{ '<|' + message.role + '|>\\n' + message.content + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
SENTENCE = "the a pack of tokens fits into one long step when every rank has equal work and no sample is lost"
WORDS = SENTENCE.split()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora and tokenizers, or a skip with the reason."""
    root = os.environ.get("HBP_SHARED") or Path(__file__).parents[2] / "shared"
    data = Path(root) / "data"
    if not data.is_dir():
        pytest.skip(f"no real corpora at {data} (set HBP_SHARED to the folder that holds data/)")
    return data


def write_tokenizer(folder: Path) -> None:
    """Train a byte-level BPE of 400 tokens and write it as a Hugging Face folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": None, "eos_token": EOS, "pad_token": EOS, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def text(rng: random.Random, num_words: int) -> str:
    """Random words."""
    return " ".join(rng.choice(WORDS) for _ in range(num_words))


def write_corpus(folder: Path, *, num_short: int = 400, num_long: int = 12, seed: int = 0) -> None:
    """``short.jsonl`` (messages), ``long.jsonl`` (prompt, response): lengths to about 4,000 tokens."""
    rng = random.Random(seed)
    with open(folder / "short.jsonl", "w", encoding="utf-8") as handle:
        for number in range(num_short):
            messages = [{"role": "system", "content": "Be brief."}] if number % 7 == 0 else []
            for _ in range(rng.randint(1, 3)):
                messages.append({"role": "user", "content": text(rng, rng.randint(1, 40))})
                messages.append({"role": "assistant", "content": text(rng, rng.randint(1, 40))})
            handle.write(json.dumps({"id": f"s{number}", "messages": messages, "source": "made"}) + "\n")
    with open(folder / "long.jsonl", "w", encoding="utf-8") as handle:
        for number in range(num_long):
            row = {"id": number, "prompt": text(rng, rng.randint(400, 2500)), "response": text(rng, 60)}
            handle.write(json.dumps(row) + "\n")


def recipe(**changes: object) -> dict[str, object]:
    """The recipe of the tiny corpus as a dictionary, paths relative to its folder."""
    base: dict[str, object] = {
        "name": "tiny",
        "seed": 3,
        "sources": [{"name": "short", "paths": "short.jsonl"}, {"name": "long", "paths": "long.jsonl"}],
        "tokenizer": {"path": "tokenizer"},
        "packing": {"groups": [{"length": 1024}, {"length": 8192, "sp_degree": 2}], "shard_tokens": 65536},
        "cluster": {"world_size": 4, "gpus_per_node": 4},
        "batching": {"micro_steps_per_step": 2},
        "curriculum": {"kind": "two_phase", "first_phase_fraction": 0.25},
    }
    return base | changes


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``short.jsonl``, ``long.jsonl``, ``tokenizer/`` and ``recipe.yaml``; read only."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tokenizer(folder / "tokenizer")
    write_corpus(folder)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe()))
    return folder


@pytest.fixture
def write_recipe(tiny_corpus: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a changed recipe into ``tmp_path``, with the tiny corpus's files named by absolute paths."""

    def write(**changes: object) -> Path:
        sources = [
            {"name": "short", "paths": str(tiny_corpus / "short.jsonl")},
            {"name": "long", "paths": str(tiny_corpus / "long.jsonl")},
        ]
        made = recipe(sources=sources, tokenizer={"path": str(tiny_corpus / "tokenizer")}) | changes
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(made))
        return path

    return write


@pytest.fixture(scope="session")
def s3() -> Iterator[None]:
    """A server that speaks S3, on this machine; its address and credentials are in the environment."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield
    server.stop()
