"""Reads a tokenizer: a Hugging Face folder, or a tiktoken rank file.

A folder has ``tokenizer.json`` and ``tokenizer_config.json``, perhaps ``chat_template.jinja``. A rank file is converted
(see ``rank_file``); what stands in a ``tokenizer_config.json`` or ``chat_template.jinja`` beside it counts, neither is
needed.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hbp_prep.errors import ConfigError, DataError
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.rank_file import RANK_FILE_SUFFIXES, convert_rank_file
from hbp_prep.tokenization.template import builtin_template

_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder:
    """What a tokenizer folder, or a rank file, holds.

    Attributes:
        path: The folder.
        tokenizer: Truncation and padding switched off.
        sha256: Of ``tokenizer.json``'s bytes, or of what a rank file was converted to.
        special_tokens: Texts by name (``bos_token``, ``eos_token``, ...); only those that are set.
        config: ``tokenizer_config.json``.
        is_byte_level: Its decoder is ByteLevel: every token is a known string of bytes.
    """

    path: Path
    tokenizer: Tokenizer
    sha256: str
    special_tokens: dict[str, str]
    config: dict[str, Any]
    is_byte_level: bool


def read_tokenizer_folder(path: Path) -> TokenizerFolder:
    """Read and check a tokenizer: a folder, or a rank file (also alone in a folder without ``tokenizer.json``).

    Raises:
        DataError: the folder or one of its files is missing or damaged, or the eos token is missing or unknown.
    """
    rank_file = _find_rank_file(path)
    if rank_file is not None:
        return _read_rank_file(rank_file)
    if not path.is_dir():
        near = _nearest(path, Path.is_dir)
        raise DataError(f"tokenizer {path} is not a folder; give one with tokenizer.json in it{near}")
    data = _read(path / "tokenizer.json")
    try:
        model = json.loads(data)
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing more precise
        raise DataError(f"{path / 'tokenizer.json'} cannot be read by the tokenizers library ({error})") from error
    config = _read_config(path / "tokenizer_config.json")
    is_byte_level = (model.get("decoder") or {}).get("type") == "ByteLevel"
    return _checked(path, tokenizer, hashlib.sha256(data).hexdigest(), config, {}, is_byte_level=is_byte_level)


def _find_rank_file(path: Path) -> Path | None:
    """``path`` itself if it is a file, or the only rank file of a folder without ``tokenizer.json``."""
    if path.is_file():
        return path
    if not path.is_dir() or (path / "tokenizer.json").exists():
        return None
    found = [entry for entry in path.iterdir() if entry.suffix in RANK_FILE_SUFFIXES and entry.is_file()]
    return found[0] if len(found) == 1 else None


def _read_rank_file(path: Path) -> TokenizerFolder:
    if path.suffix not in RANK_FILE_SUFFIXES:
        raise DataError(
            f"tokenizer {path} is neither a folder with tokenizer.json in it nor a rank file "
            f"({' or '.join(RANK_FILE_SUFFIXES)})"
        )
    config_path = path.parent / "tokenizer_config.json"
    config = _read_config(config_path) if config_path.exists() else {}
    family = config.get("rank_file_family")
    if family is not None and not isinstance(family, str):
        raise DataError(f"{config_path}: rank_file_family is not a string")
    tokenizer, special_tokens = convert_rank_file(path, _read(path), family)
    sha256 = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    return _checked(path.parent, tokenizer, sha256, config, special_tokens, is_byte_level=True)


def _checked(
    path: Path,
    tokenizer: Tokenizer,
    sha256: str,
    config: dict[str, Any],
    known_tokens: dict[str, str],
    *,
    is_byte_level: bool,
) -> TokenizerFolder:
    """The folder with its special tokens: ``known_tokens``, and before them those of the configuration.

    Raises:
        DataError: the eos token is missing or unknown.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    named = {name: text for name in _SPECIAL_NAMES if (text := _token_text(config.get(name))) is not None}
    special_tokens = known_tokens | named
    eos = special_tokens.get("eos_token")
    if eos is None:
        raise DataError(f"{path / 'tokenizer_config.json'} has no eos_token; set it to the end-of-turn token's text")
    if tokenizer.token_to_id(eos) is None:
        raise DataError(f"{path / 'tokenizer_config.json'}: its eos_token {eos!r} is not in the tokenizer's vocabulary")
    return TokenizerFolder(
        path=path,
        tokenizer=tokenizer,
        sha256=sha256,
        special_tokens=special_tokens,
        config=config,
        is_byte_level=is_byte_level,
    )


def find_template(folder: TokenizerFolder, chat_template: str | None) -> tuple[str, str]:
    """The template's text and its name for messages.

    Args:
        chat_template: ``None`` for the folder's own, a built-in template's name, or a ``.jinja`` file.

    Raises:
        ConfigError: there is no such template.
    """
    if chat_template is None:
        return _own_template(folder)
    path = Path(chat_template)
    if path.is_file() or path.suffix in _TEMPLATE_SUFFIXES or len(path.parts) > 1:
        return _read_template(path), path.name
    return builtin_template(chat_template), chat_template


def _own_template(folder: TokenizerFolder) -> tuple[str, str]:
    """``chat_template.jinja`` if there is one, as in transformers; else the configuration's ``chat_template``."""
    name = f"of {folder.path.name}"
    path = folder.path / "chat_template.jinja"
    if path.is_file():
        return _read_template(path), name
    template = folder.config.get("chat_template")
    if isinstance(template, str):
        return template, name
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        chosen = named.get("default")
        if isinstance(chosen, str):
            return chosen, name
        raise ConfigError(
            f"{folder.path}: of its chat templates ({', '.join(map(str, named))}) none is named 'default'; "
            "save the one you want as a .jinja file and give that as chat_template"
        )
    raise ConfigError(
        f"{folder.path} has no chat template; set chat_template to a built-in one (tulu3, chatml) or to a .jinja file"
    )


def _read_template(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        near = _nearest(path, lambda entry: entry.suffix in _TEMPLATE_SUFFIXES)
        raise ConfigError(f"chat template {path} does not exist{near}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"chat template {path} cannot be read ({error})") from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{path}: not a JSON object")
    return config


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing; a tokenizer folder has tokenizer.json and tokenizer_config.json") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from error


def _nearest(path: Path, is_wanted: Callable[[Path], bool]) -> str:
    """What else stands where ``path`` does not."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir() if is_wanted(entry)] if folder.is_dir() else []
    return did_you_mean(path.name, names) if names else ""


def _token_text(value: Any) -> str | None:
    """A special token as configurations have it: a string, or an AddedToken's dictionary."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
