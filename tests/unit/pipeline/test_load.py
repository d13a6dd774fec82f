"""Recipes: what is accepted, what is refused, and how the messages read."""

from pathlib import Path

import pytest
import yaml

from hbp_prep.errors import ConfigError
from hbp_prep.pipeline.load import load_recipe, resolved_yaml
from hbp_prep.pipeline.recipe import length_name, parse_length

MINIMAL = {
    "name": "tiny",
    "sources": [{"name": "a", "paths": "data/*.jsonl"}],
    "tokenizer": {"path": "tok"},
    "packing": {"groups": [{"length": "128K", "sp_degree": 8}, {"length": 16384}]},
    "cluster": {"world_size": 32},
}


def write(tmp_path: Path, recipe: object, name: str = "recipe.yaml") -> Path:
    path = tmp_path / name
    path.write_text(recipe if isinstance(recipe, str) else yaml.safe_dump(recipe), encoding="utf-8")
    return path


def refusal(tmp_path: Path, recipe: object, *overrides: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe(write(tmp_path, recipe), overrides, environment or {})
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_are_filled_in_and_paths_made_absolute(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, MINIMAL))
    assert recipe.sources[0].paths == [str(tmp_path / "data/*.jsonl")]
    assert recipe.tokenizer.path == str(tmp_path / "tok")
    assert [group.length for group in recipe.packing.groups] == [16 * 1024, 128 * 1024], "ascending"
    assert recipe.epochs == 1
    assert recipe.over_length.policy == "drop"


def test_the_resolved_recipe_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, MINIMAL))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert load_recipe(write(elsewhere, resolved_yaml(recipe))) == recipe


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"packng": {}}, "unknown key 'packng'; did you mean 'packing'?"),
        ({"packing": {"groups": [{"length": "8K", "sp_degre": 2}]}}, "did you mean 'sp_degree'?"),
        ({"cluster": {"world_size": 8, "gpus": 8}}, "unknown key 'cluster.gpus'"),
        ({"cluster": {}}, "the key 'cluster.world_size' is missing"),
        ({"cluster": {"world_size": "many"}}, "cluster.world_size"),
        ({"cluster": {"world_size": True}}, "cluster.world_size"),
        ({"cluster": {"world_size": 0}}, "cluster.world_size"),
        ({"packing": {"groups": []}}, "packing.groups"),
        ({"packing": {"groups": [{"length": "12Q"}]}}, "'12Q' is not a length; write 16384, 16K or 1M"),
        ({"packing": {"groups": [{"length": "8K"}, {"length": 8192}]}}, "two packing groups have the length 8K"),
        ({"sources": [{"name": "a", "paths": "x"}, {"name": "a", "paths": "y"}]}, "two sources are named 'a'"),
        ({"sources": [{"name": "a", "paths": "x", "weight": 0}]}, "sources.0.weight"),
        ({"sources": [{"name": "a", "paths": "x", "weight": float("nan")}]}, "sources.0.weight"),
        ({"over_length": {"policy": "trunkate"}}, "'trunkate' is not known; did you mean 'truncate'?"),
        ({"batching": {"order": "stratifed"}}, "did you mean 'stratified'?"),
        ({"curriculum": {"kind": "two_phase"}}, "needs first_phase_steps or first_phase_fraction"),
        ({"curriculum": {"first_phase_steps": 3}}, "go with kind: two_phase"),
        ({"tokenizer": {"path": "tok", "chat_template": "tulu"}}, "did you mean 'tulu3'?"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, object], expected: str) -> None:
    message = refusal(tmp_path, MINIMAL | change)
    assert expected in message
    assert "recipe.yaml" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [", "not valid YAML"),
        ("- 1\n- 2\n", "a recipe is a mapping"),
        ("", "a recipe is a mapping of keys, this file holds nothing"),
        ("name: a\nname: b\n", "the key 'name' stands twice"),
        ("? [1, 2]\n: 3\n", "a key must be a plain word"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("[" * 100_000, "not valid YAML"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_a_missing_recipe_suggests_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL)
    with pytest.raises(ConfigError, match=r"does not exist; did you mean 'recipe\.yaml'"):
        load_recipe(tmp_path / "recipes.yaml")


def test_a_recipe_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_recipe(tmp_path / "r.yaml")


def test_overrides(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    recipe = load_recipe(
        path,
        ["packing.strategy=isf", "sources.0.limit=7", "cluster.world_size=64", "packing.groups=[{length: 4K}]"],
    )
    assert recipe.packing.strategy == "isf"
    assert recipe.sources[0].limit == 7
    assert recipe.cluster.world_size == 64
    assert [group.length for group in recipe.packing.groups] == [4096]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("packing.strategy", "write dotted.key=value"),
        ("=3", "write dotted.key=value"),
        ("sources.3.limit=7", "list position from 0 to 0"),
        ("sources.a=7", "list position from 0 to 0"),
        ("name.x=1", "has no 'x'"),
        ("name.x.y=1", "nothing below"),
        ("seed=[", "not valid YAML"),
        ("packing.stratgy=isf", "did you mean 'strategy'?"),
    ],
)
def test_overrides_that_fit_nowhere(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in refusal(tmp_path, MINIMAL, override)


def test_variables_in_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = MINIMAL | {
        "sources": [{"name": "a", "paths": ["${DATA}/x.jsonl", "${OTHER:-/else}/y.jsonl", "sub/${NAME}.jsonl"]}]
    }
    monkeypatch.chdir(tmp_path.parent)
    recipe = load_recipe(write(tmp_path, changed), (), {"DATA": "here", "NAME": "n"})
    assert recipe.sources[0].paths == [
        str(tmp_path.parent / "here/x.jsonl"),  # set in a shell: relative to where the shell is
        "/else/y.jsonl",
        str(tmp_path / "sub/n.jsonl"),
    ]
    assert "the environment variable DATA is not set" in refusal(tmp_path, changed)
    assert "not closed" in refusal(tmp_path, MINIMAL | {"tokenizer": {"path": "${TOK"}})


@pytest.mark.parametrize(("text", "tokens"), [("16K", 16384), ("1M", 1048576), ("300", 300), (7, 7), ("2k", 2048)])
def test_lengths(text: str | int, tokens: int) -> None:
    assert parse_length(text) == tokens
    assert parse_length(length_name(tokens)) == tokens
