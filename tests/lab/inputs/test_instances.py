"""Generated instances of JSON schemas are valid and reproducible, for schemas with many features."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from lab.inputs.instances import NoInstance, valid_instance
from lab.inputs.schemas import real_schemas


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "integer", "minimum": 7, "multipleOf": 5},
        {"type": ["null", "boolean"]},
        {"enum": ["a", {"b": 1}]},
        {"const": [1, 2]},
        {"type": "string", "pattern": r"^(ab|c[^d-f])+\d{2}[\w.-]?x*$", "minLength": 4},
        {"type": "string", "format": "date-time"},
        {"type": "string", "minLength": 30, "maxLength": 31},
        {"type": "array", "items": {"type": "number"}, "minItems": 5, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "null"}, "minItems": 3},
        {"required": ["b", "c"], "properties": {"a": {"type": "null"}, "b": {"const": 3}}},
        {"type": "object", "required": ["x-1"], "patternProperties": {"^x-": {"type": "integer"}}},
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "allOf": [{"minimum": 3}]},
        {
            "$ref": "#/definitions/tree",
            "definitions": {
                "tree": {
                    "required": ["kids"],
                    "properties": {"kids": {"items": {"$ref": "#/definitions/tree"}}},
                }
            },
        },
    ],
)
def test_instances_are_valid_and_reproducible(schema: Any) -> None:
    for seed in range(10):
        instance = valid_instance(schema, seed)
        jsonschema.Draft202012Validator(schema).validate(instance)
        assert valid_instance(schema, seed) == instance


@pytest.mark.parametrize(
    "schema",
    [False, {"type": "string", "pattern": "(?=x)y"}, {"$ref": "#/nowhere"}, {"$ref": "https://a.b/c"}],
)
def test_schema_without_instance_raises_an_error(schema: Any) -> None:
    with pytest.raises(NoInstance):
        valid_instance(schema, 1)


def test_properties_have_the_order_of_the_schema() -> None:
    names = ["m", "b", "z", "a"]
    schema = {"type": "object", "required": ["a", "m"], "properties": {n: {"type": "null"} for n in names}}
    orders = [list(valid_instance(schema, seed)) for seed in range(20)]
    assert all(order == [n for n in names if n in order] for order in orders)
    assert len({len(order) for order in orders}) == 3


def test_published_schemas_have_valid_instances() -> None:
    samples = list(real_schemas(every=20))
    assert len(samples) > 25 and {s.name.partition("/")[0] for s in samples} == {
        "cfn-lint",
        "check-jsonschema",
    }
    for sample in samples:
        cls = jsonschema.validators.validator_for(sample.schema, default=jsonschema.Draft202012Validator)
        assert cls(sample.schema).is_valid(json.loads(sample.text)), sample.name
    assert len({sample.name for sample in samples}) == len(samples)
    assert max(len(sample.text) for sample in samples) > 300
