"""Reads a tokenizer as a Hugging Face folder: ``tokenizer.json``, ``tokenizer_config.json`` and the chat template."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hbp_prep.errors import ConfigError, DataError
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.template import builtin_template

_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder:
    """What a tokenizer folder holds.

    Attributes:
        tokenizer: Truncation and padding switched off.
        sha256: Of ``tokenizer.json``'s bytes.
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
    """Read and check a tokenizer folder.

    Raises:
        DataError: the folder or one of its files is missing or damaged, or the eos token is missing or unknown.
    """
    if not path.is_dir():
        near = _nearest(path, Path.is_dir)
        raise DataError(f"tokenizer {path} is not a folder; give one with tokenizer.json in it{near}")
    data = _read(path / "tokenizer.json")
    try:
        model = json.loads(data)
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing more precise
        raise DataError(f"{path / 'tokenizer.json'} cannot be read by the tokenizers library ({error})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = _read_config(path / "tokenizer_config.json")
    special_tokens = {name: text for name in _SPECIAL_NAMES if (text := _token_text(config.get(name))) is not None}
    eos = special_tokens.get("eos_token")
    if eos is None:
        raise DataError(f"{path / 'tokenizer_config.json'} has no eos_token; set it to the end-of-turn token's text")
    if tokenizer.token_to_id(eos) is None:
        raise DataError(
            f"{path / 'tokenizer_config.json'}: its eos_token {eos!r} is not in tokenizer.json's vocabulary"
        )
    return TokenizerFolder(
        path=path,
        tokenizer=tokenizer,
        sha256=hashlib.sha256(data).hexdigest(),
        special_tokens=special_tokens,
        config=config,
        is_byte_level=(model.get("decoder") or {}).get("type") == "ByteLevel",
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
