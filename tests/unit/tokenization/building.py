"""Tiny tokenizers whose tokens can be counted by hand, and templates with ``{% generation %}`` put in by hand."""

# ruff: noqa: RUF001 (DeepSeek's special tokens have such characters)

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hbp_prep.corpus.types import Conversation
from hbp_prep.tokenization.encoding import EncodedSample
from hbp_prep.tokenization.template import builtin_template
from hbp_prep.tokenization.tokenizer import ChatTokenizer, TokenizationSpec

BOS, EOS, IM_START, IM_END = "<|bos|>", "<|end|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (BOS, EOS, IM_START, IM_END)


def write_folder(
    folder: Path,
    *,
    template: str | list[dict[str, str]] | None = None,
    eos: str | dict[str, Any] | None = EOS,
    merges: tuple[tuple[str, str], ...] = (),
    nfc: bool = False,
) -> Path:
    """A byte-level tokenizer: one token a byte, but for ``merges`` and special tokens. It would put BOS in front."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    bos_id = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos_id)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": BOS, "eos_token": eos, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps({key: value for key, value in config.items() if value}))
    return folder


def load(folder: Path, chat_template: str | None = None, **settings: str) -> ChatTokenizer:
    return ChatTokenizer.load(TokenizationSpec(tokenizer=str(folder), chat_template=chat_template, **settings))


def chat(*turns: tuple[str, Any] | dict[str, Any], **template_kwargs: Any) -> Conversation:
    """``chat(("user", "a"), ("assistant", "b"))``; a dictionary is a message as it is."""
    messages = [turn if isinstance(turn, dict) else {"role": turn[0], "content": turn[1]} for turn in turns]
    return Conversation(messages, None, template_kwargs)


def encode(tokenizer: ChatTokenizer, conversation: Conversation) -> EncodedSample:
    """The one sample; a rejection is raised."""
    (result,) = tokenizer.encode_batch([conversation])
    if not isinstance(result, EncodedSample):
        raise result
    return result


def trained_text(tokenizer: ChatTokenizer, conversation: Conversation, between: str = "") -> str:
    """What the model is trained to write: runs of loss tokens, decoded, joined by ``between``."""
    sample = encode(tokenizer, conversation)
    texts = tokenizer.token_texts(sample.input_ids.tolist())
    pieces, previous = [], False
    for text, is_loss in zip(texts, sample.loss_mask.tolist(), strict=True):
        if is_loss:
            pieces.append(text if previous or not pieces else between + text)
        previous = is_loss
    return "".join(pieces)


def replaced(text: str, *changes: tuple[str, str, int]) -> str:
    """``text`` with every (old, new, times) replaced exactly that often."""
    for old, new, times in changes:
        assert text.count(old) == times, f"{text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return text


OPEN, CLOSE = "{%- generation %}", "{%- endgeneration %}"


def tulu3_twin() -> str:
    old = "{{- '<|assistant|>\\n' + message['content'] + eos_token }}"
    new = "{{- '<|assistant|>\\n' }}" + OPEN + "{{- message['content'] + eos_token }}" + CLOSE
    return replaced(builtin_template("tulu3"), (old, new, 1))


def chatml_twin() -> str:
    old = "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    new = (
        "{{- '<|im_start|>' + message['role'] + '\\n' }}{%- if message['role'] == 'assistant' %}"
        + OPEN
        + "{{- message['content'] + '<|im_end|>' }}"
        + CLOSE
        + "{%- else %}{{- message['content'] + '<|im_end|>' }}{%- endif %}{{- '\\n' }}"
    )
    return replaced(builtin_template("chatml"), (old, new, 1))


def llama3_1_twin(template: str) -> str:
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    new = (
        "{% if message['role'] == 'assistant' %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{{ '"
        + header
        + "' }}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}"
        + "{% else %}{{ content }}{% endif %}"
    )
    return replaced(template, ("{{ content }}", new, 1))


def qwen3_twin(template: str) -> str:
    header = "'<|im_start|>' + message.role + '\\n"
    begin = "{%- if loop.index0 > ns.last_query_index %}"
    return replaced(
        template,
        ("{{- " + header + "<think>\\n' + reasoning", "{{- '<think>\\n' + reasoning", 1),
        ("{{- " + header + "' + content }}", "{{- content }}", 2),
        (begin, "{{- '<|im_start|>assistant\\n' }}" + OPEN + begin, 1),
        (
            "{{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
            "{{- '<|im_end|>' }}" + CLOSE + "{{- '\\n' }}{%- elif message.role == \"tool\" %}",
            1,
        ),
    )


def deepseek_v3_twin(template: str) -> str:
    answer = "message['content'] + '<｜end▁of▁sentence｜>'}}"
    marked = "{% generation %}{{ " + answer + "{% endgeneration %}"
    return replaced(
        template,
        ("{{'<｜Assistant｜>' + " + answer, "{{'<｜Assistant｜>'}}" + marked, 1),
        ("{{'<｜tool▁outputs▁end｜>' + " + answer, "{{'<｜tool▁outputs▁end｜>'}}" + marked, 1),
    )
