"""Tiktoken rank files (Llama 3's ``tokenizer.model``, ``qwen.tiktoken``) as tokenizers of the ``tokenizers`` library.

A rank file lists byte strings with their ranks, ``base64(token) rank`` a line; the rank is the token's id and the order
of merging. Tiktoken joins the neighbours whose union has the lowest rank. The conversion therefore lists *every* way to
split every token into two others as a merge, in the order of the tokens' ranks, and takes a piece that is a token whole
(``ignore_merges``), as tiktoken does. What the file does not hold, the regular expression that cuts text into pieces
and the special tokens, comes from its family. Cost: 1 to 2 s for 150,000 tokens.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from hbp_prep.errors import DataError
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.byte_symbols import to_symbols

RANK_FILE_SUFFIXES = (".model", ".tiktoken")
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _pieces(words: str, digits: str, after_symbols: str = r"[\r\n]*") -> str:
    """The regular expression of the GPT-4 kind: words, digits, symbols, line ends, white space."""
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{after_symbols}|\s*[\r\n]+|\s+(?!\S)|\s+"


_GPT4_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
)


@dataclass(frozen=True, kw_only=True)
class RankFamily:
    """What the rank files of a family leave unsaid.

    Attributes:
        sha256: Of the file that is known to be of this family.
        pieces: Regular expression that cuts text into pieces before merging.
        specials: Texts of the special tokens; their ids follow the last rank.
        special_tokens: ``bos_token``, ``eos_token`` (what ends a chat turn) and ``pad_token``.
        is_nfc: Text is brought into Unicode's NFC first.
    """

    sha256: str
    pieces: str
    specials: tuple[str, ...]
    special_tokens: Mapping[str, str]
    is_nfc: bool = False


def _numbered(name: str, start: int, stop: int) -> tuple[str, ...]:
    return tuple(f"<|{name}_{number}|>" for number in range(start, stop))


_LLAMA3_SPECIALS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
    *("<|eot_id|>", "<|python_tag|>", "<|image|>"),
)
_LLAMA4_SPECIALS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"),
    *_numbered("text_post_train_reserved_special_token", 0, 6),
    *("<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"),
    *_numbered("text_post_train_reserved_special_token", 8, 69),
    *("<|image_start|>", "<|image_end|>", *_numbered("vision_reserved_special_token", 0, 2)),
    *("<|tile_x_separator|>", "<|tile_y_separator|>", *_numbered("vision_reserved_special_token", 2, 6)),
    *("<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>"),
    *_numbered("vision_reserved_special_token", 7, 1048),
    *_numbered("reasoning_reserved_special_token", 0, 8),
    *("<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
)

FAMILIES: Mapping[str, RankFamily] = {
    # Llama 3 to 3.3 share the ranks; names of special tokens as since 3.1.
    "llama3": RankFamily(
        sha256="82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        pieces=_pieces(_GPT4_WORDS, r"\p{N}{1,3}"),
        specials=(*_LLAMA3_SPECIALS, *_numbered("reserved_special_token", 2, 2 + 256 - len(_LLAMA3_SPECIALS))),
        special_tokens={
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot_id|>",
            "pad_token": "<|finetune_right_pad_id|>",
        },
    ),
    "qwen": RankFamily(
        sha256="b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
        pieces=_pieces(_GPT4_WORDS, r"\p{N}"),
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>", *_numbered("extra", 0, 205)),
        special_tokens={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        is_nfc=True,
    ),
    "llama4": RankFamily(
        sha256="d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
        pieces=_pieces(_GPT4O_WORDS, r"\p{N}{1,3}", r"[\r\n/]*"),
        specials=(*_LLAMA4_SPECIALS, *_numbered("reserved_special_token", 0, 2048 - len(_LLAMA4_SPECIALS))),
        special_tokens={
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot|>",
            "pad_token": "<|finetune_right_pad|>",
        },
    ),
}


def convert_rank_file(path: Path, data: bytes, family_name: str | None) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer of a rank file, and its special tokens by name.

    Args:
        data: The file's bytes.
        family_name: A key of :data:`FAMILIES`; ``None``: recognised by the SHA-256 of the file.

    Raises:
        DataError: the file is damaged or no rank file, or its family is unknown.
    """
    ranks = _parse(path, data)
    family = _family(path, data, family_name)
    vocabulary = {to_symbols(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=_merges(ranks), ignore_merges=True))
    if family.is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(family.pieces), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in family.specials])
    return tokenizer, dict(family.special_tokens)


def _family(path: Path, data: bytes, name: str | None) -> RankFamily:
    if name is not None:
        if name not in FAMILIES:
            raise DataError(f"{path}: the family {name!r} of rank files is not known{did_you_mean(name, FAMILIES)}")
        return FAMILIES[name]
    sha256 = hashlib.sha256(data).hexdigest()
    for family in FAMILIES.values():
        if family.sha256 == sha256:
            return family
    raise DataError(
        f"{path} is a rank file that is not known (SHA-256 {sha256[:12]}...), so its special tokens and the way it "
        'cuts text are not known either; if it is of a known family, put {"rank_file_family": '
        f'"{next(iter(FAMILIES))}"}} (or {", ".join(list(FAMILIES)[1:])}) into a tokenizer_config.json beside it'
    )


def _parse(path: Path, data: bytes) -> dict[bytes, int]:
    """Byte strings with their ranks: 0, 1, 2, ... in ascending order, all 256 bytes among them."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            token, rank = base64.b64decode(fields[0], validate=True), int(fields[1])
        except (binascii.Error, ValueError, IndexError):
            raise DataError(
                f"{path}, line {number}: not a token in base64 with its rank; only tiktoken's rank files are read "
                "directly (SentencePiece models are not): save this tokenizer as tokenizer.json"
            ) from None
        if len(fields) != 2 or not token or token in ranks or rank != len(ranks):
            raise DataError(f"{path}, line {number}: the token is doubled, empty, or its rank is not {len(ranks)}")
        ranks[token] = rank
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of the 256 bytes have no rank (the first: {missing[0]}); it is cut off"
        )
    return ranks


def _merges(ranks: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """Every split of every token into two, in the order of the tokens' ranks, then of the parts' ranks."""
    merges: list[tuple[str, str]] = []
    for token in ranks:
        splits = []
        for cut in range(1, len(token)):
            left, right = ranks.get(token[:cut]), ranks.get(token[cut:])
            if left is not None and right is not None:
                splits.append((left, right, cut))
        symbols = to_symbols(token)
        merges += [(symbols[:cut], symbols[cut:]) for _, _, cut in sorted(splits)]
    return merges
