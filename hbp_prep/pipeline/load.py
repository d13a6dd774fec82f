"""From a recipe file to a :class:`Recipe`: YAML, ``--set`` overrides, variables, absolute paths, clear messages."""

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from hbp_prep.corpus.remote import is_remote
from hbp_prep.errors import ConfigError
from hbp_prep.files import is_unicode
from hbp_prep.pipeline.recipe import Recipe
from hbp_prep.suggest import did_you_mean
from hbp_prep.tokenization.template import BUILTIN_TEMPLATES

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def load_recipe(path: Path | str, overrides: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> Recipe:
    """Read a recipe, apply ``--set`` overrides, expand variables and make paths absolute.

    Args:
        path: The YAML file. Relative paths in it are relative to its folder; a path that starts with a variable
            is relative to the current folder, where the variable was set.
        overrides: ``dotted.key=value`` texts; values are YAML, list items are named by their number.
        environment: Where ``${VAR}`` and ``${VAR:-default}`` in paths are looked up.

    Raises:
        ConfigError: naming the file, the key and the nearest right name.
    """
    path = Path(path)
    raw = _read_yaml(path)
    for override in overrides:
        _apply_override(raw, override)
    try:
        recipe = Recipe.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: " + "\n".join(_sentence(item) for item in error.errors())) from error
    return _with_absolute_paths(recipe, path, environment)


def resolved_yaml(recipe: Recipe) -> str:
    """The full configuration, defaults filled in and paths absolute; loading it again gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, which YAML readers otherwise overwrite in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a plain word", problem_mark=key_node.start_mark)
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key_node.value!r} stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = did_you_mean(path.name, (item.name for item in path.parent.glob("*.y*ml")))
        raise ConfigError(f"recipe {path} does not exist{near}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"recipe {path} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"recipe {path} cannot be read: {error.strerror}") from error
    try:
        raw = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{path}: not valid YAML: {error.problem}{where}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a recipe is a mapping of keys, this file holds {_kind(raw)}")
    return raw


def _apply_override(raw: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    if not separator or not dotted:
        raise ConfigError(f"--set {override!r}: write dotted.key=value, e.g. packing.strategy=bfd")
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--set {override[:80]!r}: the value is not valid YAML: {error}") from error
    *parents, last = dotted.split(".")
    place: Any = raw
    for key in parents:
        place = _step_into(place, key, override)
    if isinstance(place, list):
        place[_list_index(place, last, override)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise ConfigError(f"--set {override!r}: {'.'.join(parents)!r} holds {_kind(place)}, it has no {last!r}")


def _step_into(place: Any, key: str, override: str) -> Any:
    if isinstance(place, list):
        return place[_list_index(place, key, override)]
    if isinstance(place, dict):
        return place.setdefault(key, {})
    raise ConfigError(f"--set {override!r}: there is nothing below {_kind(place)} to set {key!r} in")


def _list_index(items: list[Any], key: str, override: str) -> int:
    if not key.isdecimal() or int(key) >= len(items):
        raise ConfigError(f"--set {override!r}: {key!r} should be a list position from 0 to {len(items) - 1}")
    return int(key)


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"the value {value!r}")


def _sentence(item: Any) -> str:
    """One pydantic error as one sentence that names the key."""
    location = item["loc"]
    key = ".".join(str(part) for part in location)
    if item["type"] == "extra_forbidden":
        return f"unknown key {key!r}{did_you_mean(str(location[-1]), _fields_at(location[:-1]))}"
    if item["type"] == "missing":
        return f"the key {key!r} is missing"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "literal_error":
        near = did_you_mean(str(item["input"]), re.findall(r"'([^']*)'", item["ctx"]["expected"]))
        return f"{key}: {item['input']!r} is not known{near}"
    shown = repr(item["input"])
    return f"{key}: {message}" + (f" (found {shown})" if len(shown) <= 60 and item["type"] != "value_error" else "")


def _fields_at(location: Sequence[str | int]) -> list[str]:
    """Names of the fields of the model that ``location`` leads to."""
    model: type[BaseModel] = Recipe
    for part in location:
        if isinstance(part, int):
            continue
        model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel]:
    """The model class inside an annotation such as ``list[Source]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(_model_in(argument) for argument in annotation.__args__)


def _with_absolute_paths(recipe: Recipe, recipe_path: Path, environment: Mapping[str, str]) -> Recipe:
    folder = recipe_path.resolve().parent

    def absolute(text: str, key: str) -> str:
        base = Path.cwd() if text.startswith("${") else folder
        expanded = _VARIABLE.sub(lambda match: _value_of(match, key, recipe_path, environment), text)
        if "${" in expanded:
            raise ConfigError(f"{recipe_path}: {key}: {text!r} has a variable that is not closed; write ${{NAME}}")
        expanded = expanded.removeprefix("file://")
        if is_remote(expanded):
            return expanded
        try:
            path = os.path.normpath(base / Path(expanded).expanduser())
        except RuntimeError as error:
            raise ConfigError(f"{recipe_path}: {key}: {text!r} is no usable path ({error})") from error
        if "\0" in path or not is_unicode(path):
            raise ConfigError(f"{recipe_path}: {key}: {text!a} has a character in it that no path may have")
        return path

    sources = [
        source.model_copy(update={"paths": [absolute(text, f"sources.{number}.paths") for text in source.paths]})
        for number, source in enumerate(recipe.sources)
    ]
    update: dict[str, Any] = {"path": absolute(recipe.tokenizer.path, "tokenizer.path")}
    template = recipe.tokenizer.chat_template
    if template is not None and template not in BUILTIN_TEMPLATES:
        if not template.endswith((".jinja", ".jinja2", ".j2")):
            raise ConfigError(
                f"{recipe_path}: tokenizer.chat_template: {template!r} is neither a .jinja file nor a built-in "
                f"template{did_you_mean(template, BUILTIN_TEMPLATES)}"
            )
        update["chat_template"] = absolute(template, "tokenizer.chat_template")
    tokenizer = recipe.tokenizer.model_copy(update=update)
    return recipe.model_copy(update={"sources": sources, "tokenizer": tokenizer})


def _value_of(match: re.Match[str], key: str, recipe_path: Path, environment: Mapping[str, str]) -> str:
    name, default = match[1], match[2]
    value = environment.get(name) or default
    if value is None:
        raise ConfigError(
            f"{recipe_path}: {key}: the environment variable {name} is not set; "
            f"set it, or give a default with ${{{name}:-value}}"
        )
    return value
