"""Schemas without `$schema` in a spelling of older drafts that can only mean one thing."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from jsonschema import Draft201909Validator

from lab.oracles.json_schema.schema_engine import Engine

WORDS: list[Any] = [1, "a", None]
TEXTS = [list(items) for size in range(4) for items in itertools.product(WORDS, repeat=size)]
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
DEFINITIONS = {"pair": {"items": [{"$ref": "#/definitions/int"}, TEXT]}, "int": INTEGER}


@pytest.mark.parametrize(
    "schema",
    [
        {"items": [INTEGER, TEXT]},
        {"items": []},
        {"items": [INTEGER, TEXT], "additionalItems": False},
        {"items": [INTEGER], "additionalItems": TEXT, "minItems": 2},
        {"items": [INTEGER], "contains": TEXT},
        {"items": [INTEGER], "unevaluatedItems": False},
        {"items": [INTEGER], "allOf": [{"items": [True, TEXT]}], "unevaluatedItems": False},
        {"not": {"items": [INTEGER, TEXT]}},
        {"anyOf": [{"items": [INTEGER, INTEGER]}, {"items": TEXT}]},
        {"$ref": "#/definitions/pair", "maxItems": 2, "definitions": DEFINITIONS},
        {"items": [{"const": 1}, False]},
    ],
    ids=json.dumps,
)
def test_list_of_schemas_in_items(engine: Engine, schema: dict[str, Any]) -> None:
    schema = {"type": "array", **schema}
    engine.compile(schema)
    judge = Draft201909Validator(schema)
    for items in TEXTS:
        assert engine.accepts(json.dumps(items)) == judge.is_valid(items), items


def test_each_schema_has_its_own_spelling(engine: Engine) -> None:
    """A schema with the present spelling may contain one with the older spelling."""
    engine.compile({"type": "array", "prefixItems": [{"type": "array", "items": [INTEGER]}], "items": False})
    assert engine.accepts("[[1, 2]]") and not engine.accepts('[["a"]]') and not engine.accepts("[[], []]")


def test_documents_state_drafts_of_their_own(engine: Engine) -> None:
    old = {"type": "array", "items": [INTEGER], "additionalItems": False}
    for documents in ({"https://a.b/old": old}, {"https://a.b/old": {**old, "$id": "https://a.b/older"}}):
        engine.compile({"$ref": "https://a.b/old"}, documents=documents)
        assert engine.accepts("[1]") and not engine.accepts("[1, 2]") and not engine.accepts('["a"]')
