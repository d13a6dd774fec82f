"""JSON schema of recipes, with the names that the rooms know filled in as enumerations."""

from typing import Any

from hbp_prep.corpus.formats import ROW_FORMATS
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.pipeline.recipe import Recipe
from hbp_prep.planning.strategies import STRATEGIES


def recipe_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a recipe."""
    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    parts = schema["$defs"]
    parts["Source"]["properties"]["format"]["enum"] = ["auto", *ROW_FORMATS]
    parts["Packing"]["properties"]["strategy"]["enum"] = list(STRATEGIES)
    parts["Cluster"]["properties"]["hardware"]["enum"] = list(HARDWARE)
    parts["Cluster"]["properties"]["model"]["enum"] = list(MODELS)
    parts["Group"]["properties"]["length"] = {
        "description": parts["Group"]["properties"]["length"]["description"],
        "anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "pattern": "^\\d+\\s*[KkMm]?$"}],
    }
    parts["Source"]["properties"]["paths"] = {
        "description": parts["Source"]["properties"]["paths"]["description"],
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    }
    return schema
