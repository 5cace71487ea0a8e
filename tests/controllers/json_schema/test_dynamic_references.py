"""`$dynamicRef` where JSON-Schema-Test-Suite has no case: negated, beside given values, and beyond limits."""

from __future__ import annotations

from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused

#: a list whose items depend on the schema around it
LIST = {
    "$id": "list",
    "properties": {"items": {"items": {"$dynamicRef": "#item"}}, "other": {"not": {"$dynamicRef": "#item"}}},
    "$defs": {"any": {"$dynamicAnchor": "item"}},
}


def of(kind: str) -> dict[str, Any]:
    """Returns the schema of a list with items of this type."""
    return {"$id": kind, "$ref": "list", "$defs": {"item": {"$dynamicAnchor": "item", "type": kind}}}


def test_one_schema_in_two_scopes(engine: Engine) -> None:
    properties = {"numbers": {"$ref": "integer"}, "texts": {"$ref": "string"}}
    defs = {"list": LIST, "integer": of("integer"), "string": of("string")}
    engine.compile({"type": "object", "properties": properties, "$defs": defs})
    assert engine.accepts('{"numbers": {"items": [1], "other": "a"}, "texts": {"items": ["a"], "other": 1}}')
    assert not engine.accepts('{"numbers": {"items": ["a"]}}')
    assert not engine.accepts('{"texts": {"items": [1]}}')
    assert not engine.accepts('{"numbers": {"other": 1}}')
    assert not engine.accepts('{"texts": {"other": "a"}}')


def test_value_beside_dynamic_reference_is_refused(engine: Engine) -> None:
    schema = of("integer") | {"const": {"items": ["a"]}, "$defs": {**of("integer")["$defs"], "list": LIST}}
    with pytest.raises(Refused, match="cannot determine whether this value meets the schema"):
        engine.compile(schema)


def test_too_many_scopes(engine: Engine) -> None:
    """A text decides at each of many levels whether it enters a resource that defines a name."""
    count, defs = 14, dict[str, Any]()
    for i in range(count):
        ways = {"properties": {way: {"$ref": f"{way}{i + 1}"} for way in "ab"}} if i + 1 < count else {}
        defs[f"a{i}"] = {"$id": f"a{i}", "$dynamicAnchor": f"n{i}"} | ways
        defs[f"b{i}"] = {"$id": f"b{i}"} | ways
        defs[f"c{i}"] = {"$id": f"c{i}", "$dynamicAnchor": f"n{i}"}
    with pytest.raises(Refused, match="depend on too many combinations of schemas"):
        engine.compile({"$ref": "a0", "$defs": defs})


def test_too_many_ambiguous_names(engine: Engine) -> None:
    defs = {
        f"{way}{i}": {"$id": f"{way}{i}", "$dynamicAnchor": f"n{i:02}"} for way in "ab" for i in range(70)
    }
    engine.compile({"$ref": "a0", "$defs": defs})
    with pytest.raises(Refused, match="there are too many such names"):
        engine.compile({"$dynamicRef": "a69#n69", "$defs": defs})
