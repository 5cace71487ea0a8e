"""Schemas that are invalid, too large or grow exponentially give a clear error, or work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused


def nested(depth: int, around: Callable[[Any, int], Any], inside: Any) -> Any:
    for level in range(depth):
        inside = around(inside, level)
    return inside


def test_one_of_16_deep(engine: Engine) -> None:
    engine.compile(
        nested(
            16,
            lambda inside, _: {
                "oneOf": [
                    {"type": "object", "properties": {"x": inside}, "required": ["x"]},
                    {"type": "string"},
                ]
            },
            {"type": "integer"},
        )
    )
    assert engine.accepts(json.dumps(nested(16, lambda inside, _: {"x": inside}, 1)))
    assert engine.accepts(json.dumps(nested(15, lambda inside, _: {"x": inside}, "a")))
    assert not engine.accepts(json.dumps(nested(15, lambda inside, _: {"x": inside}, 1)))


def test_nested_one_of_for_one_value(engine: Engine) -> None:
    engine.compile(nested(16, lambda inside, i: {"oneOf": [inside, {"const": f"c{i}"}]}, {"type": "integer"}))
    assert engine.accepts("5") and engine.accepts('"c15"') and not engine.accepts('"c16"')


def test_identical_alternatives(engine: Engine) -> None:
    """The engine does not visit all 2^depth combinations."""
    with pytest.raises(Refused, match="too many combinations"):
        engine.compile(nested(16, lambda inside, _: {"oneOf": [inside, inside]}, {"type": "integer"}))


def test_every_combination(engine: Engine) -> None:
    choices = [
        {"anyOf": [{"properties": {f"p{i}": {"type": "integer"}}}, {"required": [f"q{i}"]}]}
        for i in range(30)
    ]
    with pytest.raises(Refused, match=r"#/allOf/.*: there are too many combinations"):
        engine.compile({"allOf": choices})


@pytest.mark.parametrize("required", [["kind"], []])
def test_many_conditions_on_one_property(engine: Engine, required: list[str]) -> None:
    """Finds the 32 combinations of these conditions that are possible, among 2^30."""
    rules = [
        {"if": {"properties": {"kind": {"const": i}}}, "then": {"required": [f"v{i}"]}} for i in range(30)
    ]
    engine.compile({"type": "object", "required": required, "allOf": rules})
    assert engine.accepts('{"kind": 7, "v7": 1}') and engine.accepts('{"kind": 30}')
    assert not engine.accepts('{"kind": 7, "v8": 1}') and not engine.accepts('{"v7": 1}')
    assert engine.accepts(json.dumps(dict.fromkeys(f"v{i}" for i in range(30)))) == (not required)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_in_place_depth(engine: Engine, keyword: str) -> None:
    engine.compile(nested(40, lambda inside, _: {keyword: [inside]}, {"type": "integer"}))
    assert engine.accepts("1") and not engine.accepts('"a"')
    with pytest.raises(Refused, match="nested too deeply"):
        engine.compile(nested(60, lambda inside, _: {keyword: [inside]}, {"type": "integer"}))


def test_nested_negations(engine: Engine) -> None:
    engine.compile(nested(40, lambda inside, _: {"not": inside}, {"type": "integer"}))
    assert engine.accepts("1") and not engine.accepts('"a"')
    with pytest.raises(Refused, match="nested too deeply"):
        engine.compile(nested(200, lambda inside, _: {"not": inside}, {"type": "integer"}))


def test_deep_properties(engine: Engine) -> None:
    schema = nested(200, lambda inside, _: {"properties": {"x": inside}}, {"type": "integer"})
    engine.compile(schema)
    assert engine.accepts(json.dumps(nested(200, lambda inside, _: {"x": inside}, 1)))
    assert not engine.accepts(json.dumps(nested(200, lambda inside, _: {"x": inside}, "a")))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "line 1, column 1: the text ends where a value is expected"),
        ('{"a": 1,}', "line 1, column 9: a value is missing after this comma"),
        ('{"a":\n  tru}', "line 2, column 3: a value is expected"),
        ('{"a": "b}', "line 1, column 7: this string does not end"),
        ('{"a": "\n"}', "line 1, column 8: a control character in a string"),
        ('{"a": "\\x"}', "line 1, column 9: an unknown escape"),
        ('{"a": "\\ud800"}', "half of a pair of surrogates"),
        ('{"a": 01}', "a number does not begin with 0"),
        ("{} {}", "line 1, column 4: unexpected text after the end"),
        (b'{"title": "\xff"}', "line 1, column 12: the text is not UTF-8"),
        ("[" * 600, "nested deeper than 512 levels"),
        ('{"enum": ["' + "a" * 10_000_000 + '"]}', "the text is too long"),
        ("5", "#: a schema is expected: an object, true or false"),
        ('{"properties": []}', "#/properties: an object is expected"),
        ('{"required": [1]}', "#/required/0: a name is expected"),
        ('{"minimum": "1"}', "#/minimum: a number is expected"),
        ('{"minLength": -1}', "#/minLength: an integer that is not negative is expected"),
        ('{"minimum": 1e99999}', "#/minimum: this number is too long or too large"),
        ('{"multipleOf": 0}', "#/multipleOf: a number above 0 is expected"),
        ('{"anyOf": {}}', "#/anyOf: a list of schemas is expected"),
        ('{"properties": {"a/b~": 1}, "required": ["a/b~"]}', "#/properties/a~1b~0: a schema is expected"),
        (
            '{"properties": {"a": {"type": "x"}}, "additionalProperties": false, "unknown": 1}',
            "#/properties/a/type: one of null",
        ),
        ('{"pattern": "(a"}', "#/pattern: the pattern is not supported: a group is not closed"),
        ('{"pattern": "((a{1000}){1000}){1000}"}', "#/pattern: its automaton is too large"),
        ('{"anyOf": [{"$ref": "#"}, {"type": "null"}]}', "#: this schema refers to itself"),
        (
            '{"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": [{"items": [{}]}]}',
            "#/anyOf/0/items: a schema is expected; the draft of 2020 names a list of schemas prefixItems",
        ),
        (
            '{"items": [{}], "prefixItems": [{}]}',
            "#/items: a schema is expected; the draft of 2020 names a list of schemas prefixItems",
        ),
        ('{"type": "array", "items": {"$ref": "#"}, "minItems": 1}', "#: no value meets this schema"),
    ],
)
def test_messages(engine: Engine, schema: str | bytes, message: str) -> None:
    with pytest.raises(Refused) as caught:
        engine.compile(schema)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("inner", "pointer"),
    [
        ({"minimum": 5, "maximum": 3, "type": "integer"}, ""),
        ({"type": "string", "enum": [1, 2]}, ""),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, ""),
        ({"type": "array", "prefixItems": [{}, False], "minItems": 2}, ""),
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/no"}}, "required": ["x"]}, "$defs"),
    ],
)
def test_the_innermost_schema_without_a_value_is_named(engine: Engine, inner: Any, pointer: str) -> None:
    """Other schemas without a value, which no value needs, are not the reason."""
    outer = {
        "type": "object",
        "properties": {"no": False, "list": {"type": "array", "items": inner, "minItems": 1}},
        "required": ["list"],
        "$defs": {"no": {"not": {}}},
    }
    where = "#/$defs/no" if pointer == "$defs" else f"#/properties/list/items{pointer}"
    with pytest.raises(Refused) as caught:
        engine.compile(outer)
    assert str(caught.value).strip() == f"{where}: no value meets this schema"


def test_problems_found_early_are_not_forgotten(engine: Engine) -> None:
    """The engine checks early whether an item is possible, and must keep the problems that it finds."""
    for schema in (
        {"items": {"format": "datetime"}, "minItems": 1},
        {"properties": {"a": {"format": "datetime"}}},
    ):
        with pytest.raises(Refused, match="this format is not known"):
            engine.compile({**schema, "required": ["a"]})


def test_many_values(engine: Engine) -> None:
    engine.compile({"enum": [f"v{i}" for i in range(100_000)]})
    assert engine.accepts('"v99999"') and not engine.accepts('"v100000"')


def test_many_properties(engine: Engine) -> None:
    names = [f"v{i}" for i in range(300)]
    engine.compile(
        {"properties": {name: {"type": "integer"} for name in names}, "additionalProperties": False}
    )
    assert engine.accepts(json.dumps(dict.fromkeys(names, 1)))
    assert not engine.accepts('{"v300": 1}')
    with pytest.raises(Refused, match="#/properties: there are too many names"):
        engine.compile({"properties": dict.fromkeys((f"v{i}" for i in range(20_000)), True)})


def test_large_counts(engine: Engine) -> None:
    engine.compile({"type": "array", "items": {"type": "null"}, "minItems": 4990, "maxItems": 5000})
    for size in (4989, 4990, 4999, 5000, 5001):
        assert engine.accepts(json.dumps([None] * size)) == (4990 <= size <= 5000)
    engine.compile({"type": "string", "minLength": 2, "maxLength": 3000})
    for size in (1, 2, 1500, 2999, 3000, 3001):
        assert engine.accepts(json.dumps("é" * size, ensure_ascii=False)) == (2 <= size <= 3000)
    engine.compile({"type": "array", "items": {"type": "null"}, "maxItems": 10**12})
    assert engine.accepts(json.dumps([None] * 100))


def test_warnings_name_what_is_not_enforced(engine: Engine) -> None:
    schema = {
        "type": "array",
        "items": {"type": "string", "format": "colour", "maxLength": 5},
        "contains": {"const": "a"},
        "uniqueItems": True,
        "minItems": 2,
    }
    warnings = engine.compile(schema, warn=True)
    assert sorted(warning.partition(":")[0] for warning in warnings) == ["#/items/format", "#/uniqueItems"]
    assert engine.accepts('["a", "a"]') and not engine.accepts("[]") and not engine.accepts("[1]")


@pytest.mark.parametrize("order", [("format", "not"), ("not", "format")])
def test_no_text_meets_a_format_and_its_negation(engine: Engine, order: tuple[str, str]) -> None:
    keywords = {"format": "date", "not": {"format": "date"}}
    with pytest.raises(Refused, match=r"^#: no value meets this schema$"):
        engine.compile({"type": "string", **{name: keywords[name] for name in order}})
