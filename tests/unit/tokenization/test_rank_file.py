"""Rank files: a synthetic one with tiktoken as the reference, and damaged ones."""

import base64
import json
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.errors import DataError
from hbp_prep.tokenization.folder import read_tokenizer_folder
from hbp_prep.tokenization.rank_file import FAMILIES, convert_rank_file
from tests.unit.tokenization.building import chat, load, trained_text

BYTES = [bytes([byte]) for byte in range(255, -1, -1)]
WORDS = [b" t", b" th", b"he", b" the", b"er", b" there", b"\xc3\xa9", b"\n\n", b"12", b"123", b"'s", b" '"]
HARD = "there's the thé\n\n  café 12345 \t x\u0301 THE'S a\u030a\r\n \n the  there "


def rank_lines(tokens: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def reference(tokens: list[bytes], family: str) -> tiktoken.Encoding:
    specials = {text: len(tokens) + index for index, text in enumerate(FAMILIES[family].specials)}
    return tiktoken.Encoding(
        family,
        pat_str=FAMILIES[family].pieces,
        mergeable_ranks={token: rank for rank, token in enumerate(tokens)},
        special_tokens=specials,
    )


@pytest.fixture
def rank_file(tmp_path: Path) -> Path:
    """A small file of the family qwen, which its configuration says."""
    path = tmp_path / "small.tiktoken"
    path.write_bytes(rank_lines([*BYTES, *WORDS]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"rank_file_family": "qwen"}))
    return path


@settings(deadline=None, max_examples=150)
@given(data=st.data(), letters=st.sampled_from(["a", "ab", "ab "]))
def test_ids_equal_tiktokens_for_any_ranks(data: st.DataObject, letters: str) -> None:
    """Also for ranks that no training would give: tokens whose parts come later, or have no way to arise."""
    part = st.text(letters, min_size=2, max_size=6).map(str.encode)
    tokens = [*BYTES, *data.draw(st.lists(part, unique=True, max_size=25))]
    ours, _ = convert_rank_file(Path("any.tiktoken"), rank_lines(tokens), "llama3")
    theirs = reference(tokens, "llama3")
    for text in data.draw(st.lists(st.text(letters, max_size=30), min_size=5, max_size=5)):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode_ordinary(text)


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=100)
@given(text=st.text())
def test_ids_equal_tiktokens_for_any_text(family: str, text: str) -> None:
    tokens = [*BYTES, *WORDS]
    ours, theirs = CONVERTED[family], reference(tokens, family)
    for case in (text, HARD + text + HARD):
        encoding = ours.encode(case, add_special_tokens=False)
        normal = ours.normalizer.normalize_str(case) if ours.normalizer else case
        assert encoding.ids == theirs.encode(normal, allowed_special="all", disallowed_special=())
        assert ours.decode(encoding.ids, skip_special_tokens=False) == normal


def test_special_tokens_follow_the_ranks(rank_file: Path) -> None:
    folder = read_tokenizer_folder(rank_file)
    start = len(BYTES) + len(WORDS)
    assert folder.special_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    assert [folder.tokenizer.token_to_id(text) for text in ("<|endoftext|>", "<|im_end|>")] == [start, start + 2]
    assert folder.tokenizer.get_vocab_size() == start + len(FAMILIES["qwen"].specials)


def test_masks_are_exact_and_file_and_folder_are_one_tokenizer(rank_file: Path) -> None:
    row = chat(("user", "the thé?"), ("assistant", "there's 123"))
    by_file, by_folder = load(rank_file, "chatml"), load(rank_file.parent, "chatml")
    assert trained_text(by_file, row) == "there's 123<|im_end|>"
    assert by_file.fingerprint == by_folder.fingerprint
    assert by_file.info["name"] == rank_file.parent.name


def test_the_fingerprint_follows_the_ranks_and_the_family(rank_file: Path) -> None:
    before = load(rank_file, "chatml").fingerprint
    rank_file.write_bytes(rank_lines([*BYTES, *reversed(WORDS)]))
    changed = load(rank_file, "chatml").fingerprint
    (rank_file.parent / "tokenizer_config.json").write_text('{"rank_file_family": "llama3"}')
    assert len({before, changed, load(rank_file, "tulu3").fingerprint}) == 3


def test_the_configuration_beside_it_may_name_another_eos_token(rank_file: Path) -> None:
    config = {"rank_file_family": "qwen", "eos_token": "<|extra_7|>"}
    (rank_file.parent / "tokenizer_config.json").write_text(json.dumps(config))
    assert trained_text(load(rank_file, "tulu3"), chat(("user", "q"), ("assistant", "a"))) == "a<|extra_7|>"


def test_an_unknown_file_is_refused_with_what_to_do(rank_file: Path) -> None:
    (rank_file.parent / "tokenizer_config.json").unlink()
    with pytest.raises(DataError, match=r"small\.tiktoken is a rank file that is not known.*rank_file_family.*llama3"):
        read_tokenizer_folder(rank_file)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rank_file_family": "qven"}, "family 'qven' of rank files is not known; did you mean 'qwen'"),
        ({"rank_file_family": 3}, "rank_file_family is not a string"),
        (
            {"rank_file_family": "qwen", "eos_token": "<gone>"},
            "eos_token '<gone>' is not in the tokenizer's vocabulary",
        ),
    ],
)
def test_a_wrong_configuration_is_named(rank_file: Path, config: dict[str, object], message: str) -> None:
    (rank_file.parent / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=message):
        read_tokenizer_folder(rank_file)


LINES = rank_lines(BYTES).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x0eSentencePiece\x00\xff", "line 2: not a token in base64 with its rank; .*SentencePiece"),
        (b"", "256 of the 256 bytes have no rank"),
        (b"".join(LINES[:-1]), r"1 of the 256 bytes have no rank \(the first: 0\); it is cut off"),
        (b"".join([*LINES, LINES[0]]), "line 257: the token is doubled"),
        (b"".join([*LINES, b"YWI= 300\n"]), "line 257: .*its rank is not 256"),
        (b"".join([*LINES, b"YWI=\n"]), "line 257: not a token in base64"),
        (b"".join([*LINES, b"YW*I= 256\n"]), "line 257: not a token in base64"),
        (b"".join([*LINES, b"YWI= 256 7\n"]), "line 257"),
    ],
)
def test_damaged_files_are_refused_with_the_line(rank_file: Path, data: bytes, message: str) -> None:
    rank_file.write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_tokenizer_folder(rank_file)


def test_another_kind_of_file_is_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("a")
    with pytest.raises(DataError, match=r"vocab\.txt is neither a folder with tokenizer\.json in it nor a rank file"):
        read_tokenizer_folder(path)


CONVERTED = {name: convert_rank_file(Path(name), rank_lines([*BYTES, *WORDS]), name)[0] for name in FAMILIES}
