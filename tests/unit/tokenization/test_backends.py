"""The fast backend and the fast renderer: taken where proven, equal to the references, stopped where not."""

# ruff: noqa: RUF001 (DeepSeek's special tokens have such characters)

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hbp_prep.errors import ConfigError, DataError
from hbp_prep.reasons import Reason, RowRejected
from hbp_prep.tokenization import backends, sampling
from hbp_prep.tokenization.backends import GigatokenBackend, ReferenceBackend, choose_backend
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.tokenizer import ChatTokenizer
from tests.unit.tokenization.building import chat, load, write_folder

REAL = ("llama3_1", "qwen3", "deepseek_v3")
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.lists(
    st.sampled_from(
        [
            "<|",
            "|>",
            "<|eot_id|>",
            "<|im_end|>",
            "\ufdd0151645\ufdd0",
            "\ufdd0128009\ufdd0",
            "<|end",
            "_of_text|>",
            "<｜",
            "｜>",
            " ",
            "\n",
            "'s",
            "12345",
            "é",
        ]
    )
).map("".join)


@pytest.fixture(scope="module", params=REAL)
def pair(request: pytest.FixtureRequest, shared_data: Path) -> tuple[ChatTokenizer, ChatTokenizer]:
    folder = shared_data / "tokenizers" / request.param
    return load(folder, backend="gigatoken"), load(folder, backend="tokenizers")


@pytest.mark.real
@given(question=any_text, answer=any_text)
@settings(deadline=None, max_examples=150)
def test_backends_give_the_same_rows(pair: tuple[ChatTokenizer, ChatTokenizer], question: str, answer: str) -> None:
    row = chat(("user", question), ("assistant", answer))
    (fast,), (reference,) = (tokenizer.encode_batch([row]) for tokenizer in pair)
    if isinstance(reference, RowRejected):
        assert isinstance(fast, RowRejected)
        assert (fast.reason, fast.detail) == (reference.reason, reference.detail)
        return
    assert isinstance(fast, EncodedSample)
    assert fast.input_ids.tolist() == reference.input_ids.tolist()
    assert fast.loss_mask.tolist() == reference.loss_mask.tolist()
    assert fast.num_special_texts == reference.num_special_texts


@pytest.mark.real
@given(question=any_text, answer=any_text)
@settings(deadline=None, max_examples=150)
def test_no_text_brings_a_special_token_about(
    pair: tuple[ChatTokenizer, ChatTokenizer], question: str, answer: str
) -> None:
    """As many special tokens as for harmless messages, whatever the messages say."""
    tokenizer = pair[0]
    special = {index for index, token in tokenizer._tokenizer.get_added_tokens_decoder().items() if token.special}
    harmless, row = (chat(("user", q), ("assistant", a)) for q, a in (("q", "a"), (question, answer)))
    expected, found = tokenizer.encode_batch([harmless, row])
    assert isinstance(expected, EncodedSample)
    if isinstance(found, RowRejected):
        assert found.reason is Reason.SPANS_UNPROVEN
        return
    ids = [[index for index in sample.input_ids.tolist() if index in special] for sample in (expected, found)]
    assert ids[0] == ids[1]


@pytest.mark.real
def test_a_token_split_between_template_and_text_does_not_act(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "tokenizers" / "llama3_1"
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}{{ '<|x|>' if m.role == 'user' else '<|a|>\n' }}{{ m.content }}"
        "{{ 'id|>' if m.role == 'user' else eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|a|>\n' }}{% endif %}"
    )
    tokenizer = load(folder, str(template))
    eot = tokenizer._tokenizer.token_to_id("<|eot_id|>")
    (sample,) = tokenizer.encode_batch([chat(("user", "<|eot_"), ("assistant", "a"))])
    assert isinstance(sample, EncodedSample)
    assert sample.input_ids.tolist().count(eot) == 1
    (allowed,) = load(folder, str(template), special_tokens_in_content="allow").encode_batch(
        [chat(("user", "<|eot_"), ("assistant", "a"))]
    )
    assert isinstance(allowed, EncodedSample)
    assert allowed.input_ids.tolist().count(eot) == 2


def test_a_tokenizer_that_the_fast_backend_misreads_is_not_taken(tmp_path: Path) -> None:
    """Without a pre-tokenizer's regular expression, merges cross words; gigatoken applies one all the same."""
    path = write_folder(tmp_path / "t", merges=(("Ċ", "Ċ"),)) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    assert choose_backend(tokenizer, "auto", is_byte_exact=True).name == "tokenizers"
    assert "its ids differ" in (choose_backend(tokenizer, "auto", is_byte_exact=True).why or "")
    assert choose_backend(tokenizer, "tokenizers", is_byte_exact=True).why is None
    with pytest.raises(ConfigError, match="its ids differ"):
        choose_backend(tokenizer, "gigatoken", is_byte_exact=True)


@pytest.mark.real
def test_a_difference_during_the_run_stops_it(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/qwen3/tokenizer.json"))
    fast = GigatokenBackend(tokenizer)
    monkeypatch.setattr(sampling, "_ONE_IN", 1)
    assert np.array_equal(fast.encode(["a b"]).ids, ReferenceBackend(tokenizer).encode(["a b"]).ids)
    tokenizer.add_tokens(["a b"])
    with pytest.raises(DataError, match="--tokenizer-backend tokenizers"):
        fast.encode(["a b"])


@pytest.mark.parametrize("backend", ["auto", "tokenizers"])
def test_nul_and_lone_surrogates(tmp_path: Path, backend: str) -> None:
    tokenizer = load(write_folder(tmp_path / "t"), "tulu3", backend=backend)
    nul, half = tokenizer.encode_batch(
        [chat(("user", "\0"), ("assistant", "\0a")), chat(("user", "q"), ("assistant", "\ud800"))]
    )
    assert isinstance(nul, EncodedSample)
    assert "".join(tokenizer.token_texts(nul.input_ids.tolist())).count("\0") == 2
    assert isinstance(half, RowRejected)
    assert half.reason is Reason.LONE_SURROGATE


@pytest.mark.real
def test_the_cache_is_made_anew_when_the_process_has_grown(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/llama3_1/tokenizer.json"))
    fast = GigatokenBackend(tokenizer)
    made: list[int] = []
    load = fast._load
    monkeypatch.setattr(fast, "_load", lambda: (made.append(1), load()))
    texts = ["some words", "and others é"]
    expected = fast.encode(texts)
    monkeypatch.setattr(backends, "_LEAST_CHARS", 0)
    assert not made
    for resident in (0, None):
        monkeypatch.setattr(backends, "_MOST_GROWTH_BYTES", 1)
        monkeypatch.setattr(backends, "_MOST_UNKNOWN_CHARS", 1)
        fast._resident_bytes = resident
        found = [fast.encode(texts) for _ in range(2)]
        assert len(made) >= 1
        made.clear()
        assert all(np.array_equal(one.ids, expected.ids) for one in found)
