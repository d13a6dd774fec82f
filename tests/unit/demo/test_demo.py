"""The demo corpus: same bytes every time, rows that are what they claim to be, lengths within their limits."""

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jinja2.sandbox
import pytest
import yaml
from tokenizers import Tokenizer

from hbp_prep.demo.build import DemoCorpus, build_demo_corpus
from hbp_prep.demo.long_requests import NUM_REQUESTS
from hbp_prep.demo.stdlib import load_modules, stdlib_folder
from hbp_prep.errors import DataError

SCRIPT = """
import sys
from pathlib import Path
from hbp_prep.demo.build import build_demo_corpus
build_demo_corpus(Path(sys.argv[1]))
"""


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def modules():
    return load_modules()


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> DemoCorpus:
    return build_demo_corpus(tmp_path_factory.mktemp("demo") / "new" / "folder")


@pytest.fixture(scope="module")
def render(demo):
    config = json.loads((demo.tokenizer / "tokenizer_config.json").read_text())
    template = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(config["chat_template"])
    return lambda messages: template.render(messages=messages, eos_token=config["eos_token"])


@pytest.fixture(scope="module")
def tokenizer(demo):
    return Tokenizer.from_file(str(demo.tokenizer / "tokenizer.json"))


@pytest.mark.parametrize(("hash_seed", "num_threads"), [("1", "1"), ("2", "4")])
def test_same_bytes_in_another_process(demo, tmp_path, hash_seed, num_threads):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "RAYON_NUM_THREADS": num_threads}
    subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "demo")], env=environment, check=True)
    assert digests(tmp_path / "demo") == digests(demo.folder)


def test_files(demo):
    assert set(digests(demo.folder)) == {
        "SOURCE.txt",
        "long.jsonl",
        "recipe.yaml",
        "short.jsonl",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    }
    assert "PSF License" in demo.source_note.read_text()


def test_short_rows_are_chats(demo):
    rows = rows_of(demo.short)
    assert 3000 <= len(rows) <= 5000
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["source"] for row in rows} == {"python_docstrings", "python_topics", "python_code"}
    for row in rows:
        roles = [message["role"] for message in row["messages"]]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        assert turns
        assert all(message["content"].strip() for message in row["messages"])
    num_system = sum(row["messages"][0]["role"] == "system" for row in rows)
    assert 0.1 * len(rows) < num_system < 0.3 * len(rows)
    assert sum(len(row["messages"]) >= 4 for row in rows) > 0.2 * len(rows)


def test_short_rows_are_short(demo, render, tokenizer):
    texts = [render(row["messages"]) for row in rows_of(demo.short)]
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    assert min(lengths) >= 8
    assert max(lengths) <= 8192
    assert 100 <= sum(lengths) / len(lengths) <= 500


def test_long_rows_fit_the_long_packing_group(demo, render, tokenizer):
    rows = rows_of(demo.long)
    assert len(rows) == NUM_REQUESTS
    assert len({row["id"] for row in rows}) == len(rows)
    texts = [
        render([{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["response"]}])
        for row in rows
    ]
    lengths = sorted(len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))
    assert lengths[0] >= 8 * 1024
    assert lengths[-1] <= 64 * 1024
    assert lengths[-1] > 2 * lengths[len(lengths) // 2]  # a tail, as in real mixtures


def test_answers_are_computed_from_the_quoted_modules(demo):
    """Import lists and docstring lines, found again by an independent reading of the prompt's own text."""
    checked = 0
    for row in rows_of(demo.long):
        if "Which modules does each" in row["prompt"]:
            for line in row["response"].split("\n\n"):
                name = line.split("`")[1]
                quoted = row["prompt"].split(f'<module name="{name}"')[1].split("\n", 1)[1].split("\n</module>")[0]
                plain = {
                    alias.name
                    for node in ast.walk(ast.parse(quoted))
                    if isinstance(node, ast.Import)
                    for alias in node.names
                }
                assert plain <= set(line.split("`")[3::2])
                checked += bool(plain)
    assert checked > 20


def test_modules_are_the_librarys_own_and_nothing_was_run(modules):
    names = {module.name for module in modules}
    assert {"textwrap", "json.decoder", "asyncio.tasks"} <= names
    assert not any("site-packages" in module.path or "test" in module.path.split("/") for module in modules)
    assert "turtle" in names
    assert "turtle" not in sys.modules
    (dedent,) = [
        function
        for module in modules
        if module.name == "textwrap"
        for function in module.functions
        if function.name == "textwrap.dedent"
    ]
    assert dedent.signature == "def dedent(text)"
    assert dedent.docstring.startswith("Remove any common leading whitespace")
    assert dedent.source.startswith("def dedent(text):\n")
    assert dedent.source in (stdlib_folder() / "textwrap.py").read_text()


def test_template_is_in_the_manner_of_tulu_3(render):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": " a "},
        {"role": "user", "content": "v"},
        {"role": "assistant", "content": "b"},
    ]
    eos = "<|end_of_text|>"
    assert render(messages) == (
        f"<|system|>\ns\n<|user|>\nu\n<|assistant|>\n a {eos}\n<|user|>\nv\n<|assistant|>\nb{eos}"
    )


def test_tokenizer_is_lossless_and_knows_its_special_tokens(tokenizer):
    text = "def f(x):\n    return 'ü 漢字 🙂' \t\r\n"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert 8000 < tokenizer.get_vocab_size() <= 8192
    assert tokenizer.encode("<|end_of_text|>").ids == [tokenizer.token_to_id("<|end_of_text|>")]


def test_recipe(demo):
    recipe = yaml.safe_load(demo.recipe.read_text())
    assert recipe["name"] == "quickstart"
    for source in recipe["sources"]:
        assert all((demo.folder / path).is_file() for path in source["paths"])
    assert (demo.folder / recipe["tokenizer"]["path"] / "tokenizer.json").is_file()


def test_another_seed_gives_other_rows(demo, tmp_path, modules, monkeypatch):
    monkeypatch.setattr("hbp_prep.demo.build.load_modules", lambda: modules)
    other = build_demo_corpus(tmp_path, seed=1)
    assert other.short.read_bytes() != demo.short.read_bytes()
    assert other.long.read_bytes() != demo.long.read_bytes()


def test_refuses_a_folder_with_other_contents(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty, and not a demo corpus"):
        build_demo_corpus(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataError, match="is a file"):
        build_demo_corpus(tmp_path / "thesis.txt")


class Sayings:
    def __init__(self):
        self.said = []

    def start(self, label, total, unit): ...
    def advance(self, amount): ...
    def finish(self): ...
    def say(self, message):
        self.said.append(message)


def test_made_afresh_in_its_own_folder_but_an_edited_recipe_stays(tmp_path, modules, monkeypatch):
    monkeypatch.setattr("hbp_prep.demo.build.load_modules", lambda: modules[:60])
    build_demo_corpus(tmp_path)
    first = digests(tmp_path)
    (tmp_path / "short.jsonl").write_text("spoilt")
    (tmp_path / "recipe.yaml").write_text("name: edited\n")
    (tmp_path / "notes.md").write_text("mine")
    listener = Sayings()
    build_demo_corpus(tmp_path, progress=listener)
    assert (tmp_path / "recipe.yaml").read_text() == "name: edited\n"
    assert (tmp_path / "notes.md").read_text() == "mine"
    assert digests(tmp_path)["short.jsonl"] == first["short.jsonl"]
    assert any("recipe.yaml" in message for message in listener.said)


def test_a_python_without_sources_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("hbp_prep.demo.stdlib.stdlib_folder", lambda: Path(tmp_path))
    with pytest.raises(DataError, match="holds 0 readable source files"):
        build_demo_corpus(tmp_path / "demo")
