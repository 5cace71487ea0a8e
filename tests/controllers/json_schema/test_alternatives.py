"""Alternatives that overlap, told apart by a property with few values."""

from __future__ import annotations

import collections
import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lab.oracles.json_schema.orders import orders
from lab.oracles.json_schema.schema_engine import Engine


def compare(engine: Engine, schema: Any, values: Iterable[Any]) -> None:
    """Compares values in the order of the schema with a validator; some are valid, and some are not."""
    engine.compile(schema)
    validator, counts = Draft202012Validator(schema), collections.Counter[bool]()
    for value in values:
        valid = validator.is_valid(value)
        assert engine.accepts(json.dumps(value)) == valid, value
        counts[valid] += 1
    assert counts[True] and counts[False]


def test_many_closed_objects_with_an_optional_property(engine: Engine) -> None:
    """All alternatives allow the empty object, so it is invalid, and each of them needs its property."""
    names = "abcdefghijklmn"
    inside = {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}
    closed = [{"type": "object", "properties": {n: inside}, "additionalProperties": False} for n in names]
    values = [{}, *({n: value} for n in names + "z" for value in ({}, {"x": True}, {"x": 1}, {"y": True}, 1))]
    values += [{one: {}, two: {}} for one, two in itertools.pairwise(names)]
    compare(engine, {"oneOf": closed}, [*values, "all", 1])
    compare(engine, {"oneOf": [{"enum": ["all", "a"]}, *closed]}, [*values, "all", 1])
    twice = [*closed, {"type": "object", "properties": {"a": inside, "z": {}}, "additionalProperties": False}]
    compare(engine, {"oneOf": twice}, [*values, {"a": {}, "z": 1}, {"z": {"x": 1}}])


def test_many_properties_that_depend_on_the_value_of_one(engine: Engine) -> None:
    kinds = {
        name: ["k1", "k2", "k3", "k4"][i % 4 : i % 4 + 1 + i % 3]
        for i, name in enumerate("abcdefghijklmnopq")
    }
    rules = {name: {"properties": {"kind": {"enum": of}}} for name, of in kinds.items()}
    properties = {
        "kind": {"enum": ["k1", "k2", "k3", "k4", "k5"]},
        **{name: {"type": "null"} for name in kinds},
    }
    values: list[Any] = [{}, 1, {"kind": "k6"}]
    for kind in (None, "k1", "k2", "k3", "k4", "k5"):
        start = {} if kind is None else {"kind": kind}
        values += [{**start, **dict.fromkeys(names)} for names in itertools.combinations(kinds, 2)]
        values += [{**start, **{name: None for name, of in kinds.items() if kind in of}}]
    for required in ([], ["kind"]):
        schema = {"properties": properties, "additionalProperties": False, "required": required}
        compare(engine, {**schema, "dependentSchemas": rules}, values)


def test_many_objects_with_a_required_property_each(engine: Engine) -> None:
    """A negation lacks its required property or has another value there, which is one way and not two."""
    names = "abcdefghijkl"
    inside = {"a": {"type": "string"}, "b": {"type": "string"}}
    integer = {"type": "integer"}
    some = [{"type": "object", "properties": {n: inside.get(n, integer)}, "required": [n]} for n in names]
    values = [
        {},
        *({n: value} for n in names + "z" for value in (1, "x")),
        {"a": "x", "b": 1},
        {"c": 1, "z": 1},
    ]
    values += [{"c": 1, "b": 1}, *({one: 1, two: 1} for one, two in itertools.pairwise(names[2:]))]
    compare(engine, {"oneOf": some}, [*values, "all", {"c": 1, "d": "x"}])


def test_many_objects_that_lack_the_property_that_tells_them_apart(engine: Engine) -> None:
    """Without it, an object has a property that others do not allow; one such need implies another."""
    grid = {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False}
    common = {"id": {"type": "string", "maxLength": 4}, "grid": grid}
    kinds = [
        {
            "type": "object",
            "properties": {"type": {"enum": [kind]}, **common, **{name: {"type": "integer"} for name in own}},
            "additionalProperties": False,
        }
        for kind, own in (
            ("one", "a"),
            ("two", "ab"),
            ("three", "ac"),
            ("four", "abcd"),
            ("five", "ae"),
            ("six", ""),
        )
    ]
    values: list[Any] = [{}, {"id": "x"}, {"id": "x", "grid": {"x": 1}}, {"type": "five", "a": 1}]
    values += [dict.fromkeys(own, 1) for size in (1, 2, 3) for own in itertools.combinations("abcdef", size)]
    values += [{"type": kind, "b": 1} for kind in ("one", "two", "seven")]
    compare(engine, {"oneOf": kinds}, values)


def test_many_objects_told_apart_by_a_pattern(engine: Engine) -> None:
    words = ("add", "perlin", "noise", "scale", "clamp", "turn", "exp", "abs", "max", "min", "pow", "blend")
    kinds = [
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "pattern": f"^{word}$"},
                "x": {"type": "integer"},
                "y": {},
            },
            "required": ["type", "x"],
        }
        for word in words
    ]
    values = [{"type": word, "x": x} for word in (*words, "adds") for x in (1, "a")]
    compare(engine, {"oneOf": kinds}, [*values, {"type": "add"}, 1])


def test_arrays_and_objects_that_must_differ(engine: Engine) -> None:
    items = [[], [1], [1, {}], [1, {"a": [3]}], [2, {"a": [2]}], [1, {"a": [2]}], [1, {"a": [2]}, 3], {}, 1]
    compare(engine, {"not": {"const": [1, {"a": [2]}]}}, items)
    members = [{}, {"a": 1}, {"b": {}}, {"a": 2, "b": {}}, {"a": 1, "b": {"x": 1}}, {"a": 1, "b": {}}]
    members += [{"a": 1, "b": {}, "c": 1}, {"c": []}, {"c": [1]}, {"c": [], "d": 1}, [], 1]
    compare(engine, {"not": {"enum": [{"a": 1, "b": {}}, {"c": []}]}}, members)
    compare(
        engine,
        {"oneOf": [{"enum": [{"$ref": "x"}, {"a": True}]}, {"type": "object"}]},
        [
            *members,
            {"$ref": "x"},
            {"$ref": "y"},
            {"a": True},
            {"a": False},
        ],
    )
    kept = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
    compare(
        engine, {**kept, "not": {"const": {"a": [True]}}}, [{"a": [True]}, {"a": []}, {"a": [True, True]}, {}]
    )


NAMES = ("kind", "label", "size", "more")


def alternative(kind: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": [kind]}, **properties},
        "required": required,
        "additionalProperties": False,
    }


def schemas(rng: random.Random) -> Any:
    """Returns a `oneOf`, or its negation, whose alternatives may lack the property that tells them apart."""
    inside: list[Any] = [
        {"type": "string", "minLength": 1},
        {"type": "integer"},
        {"enum": ["x", 1]},
        {"const": "x"},
    ]
    kinds = [
        alternative(
            kind,
            {name: rng.choice(inside) for name in rng.sample(NAMES[1:], rng.randint(0, 2))},
            rng.choice([["kind"], [], ["label"], ["kind", "label"]]),
        )
        for kind in "abc"
    ]
    made: Any = {rng.choice(["oneOf", "anyOf"]): kinds}
    return rng.choice(
        [made, {"type": "object", "not": made}, {"if": made, "then": kinds[0], "else": kinds[1]}]
    )


@pytest.mark.parametrize("seed", range(1))
def test_values(engine: Engine, seed: int) -> None:
    counts = collections.Counter[bool]()
    for number in range(60):
        rng = random.Random(seed * 100 + number)
        schema = schemas(rng)
        validator = Draft202012Validator(schema)
        values = [
            {name: rng.choice(["a", "b", "d", "x", "", 1]) for name in rng.sample(NAMES, rng.randint(0, 3))}
            for _ in range(12)
        ]
        if not any(map(validator.is_valid, values)):
            continue
        engine.compile(schema)
        for value in values:
            valid = validator.is_valid(value)
            ways = itertools.islice(orders(value), 24)
            assert any(engine.accepts(json.dumps(way)) for way in ways) == valid, (schema, value)
            counts[valid] += 1
    assert counts[True] > 100 and counts[False] > 200, counts


def test_alternatives_inside_alternatives(engine: Engine) -> None:
    """Two alternatives overlap, and seven others, of which none must hold, are inside one of them."""
    names = [{f"{name}{i}": {"type": "string", "maxLength": i + 9} for i in range(9)} for name in "abcdefg"]
    fields = {"oneOf": [alternative(str(i), some, ["kind"]) for i, some in enumerate(names)]}
    one = {
        "type": "object",
        "properties": {"fields": {"type": "array", "items": fields}, "id": {"type": "integer"}},
    }
    other = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    engine.compile({"oneOf": [one, other]})
    for letter, name, valid in (("d", 1, True), ("a", "x", True), ("d", "x", False), ("a", 1, False)):
        value = {"fields": [{"kind": "3", f"{letter}1": "x"}], "name": name}
        assert any(engine.accepts(json.dumps(way)) for way in orders(value)) == valid, value
