# ruff: noqa: RUF001 (characters of many bytes are the point)

import json
import shutil
from pathlib import Path

import pytest

from hbp_prep.errors import ConfigError, DataError
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec
from tests.unit.tokenization.building import BOS, EOS, SPECIALS, chat, encode, load, trained_text, write_folder

PLAIN = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ROW = chat(("user", "q"), ("assistant", "a"))


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the byte tokenizer to be spoilt."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_missing_folder_names_the_nearest(folder: Path) -> None:
    with pytest.raises(DataError, match=r"bites is not a folder.*did you mean 'bytes'"):
        load(folder.with_name("bites"))
    with pytest.raises(DataError, match="is not a folder"):
        load(folder / "no" / "where")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}[", b'{"a": 1', b"\xff", b"[]"])
def test_missing_or_damaged_files_are_named(own: Path, name: str, content: bytes | None) -> None:
    (own / name).unlink()
    if content is not None:
        (own / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        load(own, "tulu3")


def test_eos_token_must_be_there_and_known(own: Path) -> None:
    edit_config(own, eos_token=None)
    with pytest.raises(DataError, match="has no eos_token"):
        load(own, "tulu3")
    edit_config(own, eos_token="<gone>")
    with pytest.raises(DataError, match=r"eos_token '<gone>' is not in the tokenizer's vocabulary"):
        load(own, "tulu3")


def test_special_tokens_may_be_dictionaries(own: Path) -> None:
    edit_config(own, eos_token={"__type": "AddedToken", "content": EOS}, bos_token={"content": BOS})
    tokenizer = load(own, "tulu3")
    assert trained_text(tokenizer, ROW) == f"a{EOS}"
    assert tokenizer.info["bos_id"] == 256


def test_folder_without_template_says_how_to_give_one(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"own has no chat template; .*tulu3.*\.jinja"):
        load(own)


def test_own_template_in_every_form(own: Path) -> None:
    edit_config(own, chat_template=PLAIN)
    text = load(own).render(ROW).text
    assert text == f"user: q{EOS}assistant: a{EOS}"
    edit_config(own, chat_template=[{"name": "tool_use", "template": "no"}, {"name": "default", "template": PLAIN}])
    assert load(own).render(ROW).text == text
    edit_config(own, chat_template=[{"name": "tool_use", "template": PLAIN}])
    with pytest.raises(ConfigError, match=r"chat templates \(tool_use\) none is named 'default'"):
        load(own)
    (own / "chat_template.jinja").write_text("!" + PLAIN)
    assert load(own).render(ROW).text == "!" + text


def test_template_by_name_or_path(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(PLAIN)
    assert load(folder, str(path)).render(ROW).text.startswith("user: q")
    with pytest.raises(ConfigError, match="did you mean 'chatml'"):
        load(folder, "chatmll")
    with pytest.raises(ConfigError, match=r"onw\.jinja does not exist; did you mean 'own\.jinja'"):
        load(folder, str(tmp_path / "onw.jinja"))
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"own\.jinja cannot be read"):
        load(folder, str(path))


@pytest.mark.parametrize("key", ["loss_on", "special_tokens_in_content"])
def test_unknown_settings_name_the_known_ones(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: 'nope' is not known; known: al"):
        TokenizationSpec(tokenizer="x", **{key: "nope"})


def test_truncation_and_padding_of_the_file_are_switched_off(own: Path) -> None:
    value = json.loads((own / "tokenizer.json").read_text())
    value["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    value["padding"] = {
        "strategy": {"Fixed": 500},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    (own / "tokenizer.json").write_text(json.dumps(value))
    assert len(encode(load(own, "tulu3"), ROW).input_ids) == 9 + 2 + 14 + 2


def test_info_for_the_manifest(tulu3: ChatTokenizer) -> None:
    fingerprints = {key: tulu3.info[key] for key in ("tokenizer_fingerprint", "template_fingerprint")}
    assert tulu3.info == {
        "name": "bytes",
        "vocab_size": 256 + len(SPECIALS),
        "bos_id": 256,
        "eos_id": 257,
        "pad_id": None,
        "template": "tulu3",
        **fingerprints,
    }
    assert all(len(value) == 32 for value in fingerprints.values())


def test_fingerprint_is_of_contents(folder: Path, own: Path, tmp_path: Path) -> None:
    """Pitfall 17: another name for the same contents is the same; any change of contents or settings is not."""
    original = load(folder, "tulu3").fingerprint
    assert load(own, "tulu3").fingerprint == original
    template = tmp_path / "mine.jinja"
    template.write_text(PLAIN)
    seen = {original, load(own, "chatml").fingerprint, load(own, "tulu3", loss_on="last").fingerprint}
    seen |= {load(own, "tulu3", special_tokens_in_content="reject").fingerprint, load(own, str(template)).fingerprint}
    template.write_text("{# changed #}" + PLAIN)
    seen.add(load(own, str(template)).fingerprint)
    edit_config(own, eos_token=BOS)
    seen.add(load(own, "tulu3").fingerprint)
    write_folder(own, merges=(("a", "b"),))
    seen.add(load(own, "tulu3").fingerprint)
    assert len(seen) == 8


def test_token_texts_join_to_the_whole_text(tulu3: ChatTokenizer) -> None:
    text = "a\u0301 𝔘\n"
    ids = encode(tulu3, chat(("user", text), ("assistant", "x"))).input_ids.tolist()
    assert "".join(tulu3.token_texts(ids)) == f"<|user|>\n{text}\n<|assistant|>\nx{EOS}"
    cut = tulu3.token_texts([*encode(tulu3, ROW).input_ids.tolist()[:2], ids[13], 10**6])
    assert cut[:2] == ["<", "|"]
    assert "".join(cut[2:]) == "\ufffd"
    assert tulu3.token_texts([]) == []
