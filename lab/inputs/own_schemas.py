"""Schemas of our own, each of another kind: what applications ask of a model."""

from __future__ import annotations

from typing import Any

from lab.inputs.tool_schema import tool_schema


def _object(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    """Returns the schema of an object without other properties; all are required by default."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1, "maxLength": 40}
_PLACE = _object(("city",), street=_TEXT, city=_NAME, zip={"type": "string", "pattern": "^[0-9]{5}$"})

#: by name
OWN: dict[str, Any] = {
    "own_person": _object(
        ("name", "age"), name=_NAME, age={"type": "integer", "minimum": 0, "maximum": 125}, home=_PLACE
    ),
    "own_labels": {"type": "array", "items": {"enum": ["bug", "docs", "feature", "question"]}, "minItems": 1},
    "own_measurement": _object(
        at={"type": "string", "format": "date-time"},
        unit={"enum": ["C", "F", "K"]},
        value={"type": "number", "minimum": -300, "maximum": 10000},
    ),
    "own_contact": _object(
        ("mail",),
        mail={"type": "string", "format": "email"},
        page={"type": "string", "format": "uri"},
        host={"type": "string", "format": "hostname"},
        id={"type": "string", "format": "uuid"},
    ),
    "own_order": _object(
        number={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"},
        lines={
            "type": "array",
            "minItems": 1,
            "maxItems": 20,
            "items": _object(item=_NAME, count={"type": "integer", "minimum": 1, "maximum": 999}),
        },
        ship_to=_PLACE,
    ),
    "own_shape": {
        "oneOf": [
            _object(kind={"const": "circle"}, radius={"type": "number", "minimum": 0}),
            _object(kind={"const": "box"}, width={"type": "number"}, height={"type": "number"}),
        ]
    },
    "own_tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": _object(
                ("value",),
                value={"type": ["integer", "null"]},
                children={"type": "array", "items": {"$ref": "#/$defs/node"}},
            )
        },
    },
    "own_settings": {
        "type": "object",
        "properties": {"level": {"enum": [0, 1, 2, 3]}, "color": {"type": "boolean"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": ["number", "boolean"]},
    },
    "own_answer": _object(
        reasons={"type": "array", "items": _TEXT, "maxItems": 5},
        answer={"anyOf": [_TEXT, {"type": "number"}, {"type": "null"}]},
        sure={"type": "boolean"},
    ),
    "own_table": {
        "type": "array",
        "items": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, _NAME, {"type": "boolean"}],
            "minItems": 3,
            "items": False,
        },
        "maxItems": 30,
    },
    "own_payment": {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01},
            "method": {"enum": ["card", "transfer"]},
            "card": {"type": "string", "pattern": "^[0-9]{16}$"},
        },
        "required": ["amount", "method"],
        "if": {"properties": {"method": {"const": "card"}}},
        "then": {"required": ["card"]},
    },
    "own_tool": tool_schema(),
}
