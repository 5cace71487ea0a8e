"""Schemas that refer to other documents, which come with the request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.json_schema.engine import Engine, Refused

NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "value": {"$ref": "values.json#/$defs/one"}},
    "additionalProperties": False,
}
VALUES = {"$defs": {"one": {"$ref": "#small"}, "two": {"$anchor": "small", "type": "integer", "maximum": 3}}}
DOCUMENTS = {"https://a.example/node.json": NODE, "https://a.example/values.json": VALUES}


def test_documents_refer_to_each_other(engine: Engine) -> None:
    engine.compile({"items": {"$ref": "https://a.example/node.json"}, "type": "array"}, documents=DOCUMENTS)
    assert engine.accepts('[{"next": {"value": 3}}, {}]')
    assert not engine.accepts('[{"next": {"value": 4}}]') and not engine.accepts('[{"other": 3}]')


@pytest.mark.parametrize(
    ("documents", "reference"),
    [
        ({"https://a.example/b.json#": {"type": "null"}}, "https://a.example/b.json"),
        (
            {"https://a.example/b.json": {"$id": "https://c.example/d", "type": "null"}},
            "https://a.example/b.json",
        ),
        (
            {"https://a.example/b.json": {"$id": "https://c.example/d", "type": "null"}},
            "https://c.example/d#",
        ),
        ({"https://a.example/b.json": {"$id": "d", "type": "null"}}, "https://a.example/d"),
        ({"b.json": {"$defs": {"x y": {"type": "null"}}}}, "b.json#/$defs/x%20y"),
        ({"urn:example:b": {"type": "null"}, "urn:example:c": True}, "urn:example:b"),
    ],
)
def test_names_of_documents(engine: Engine, documents: dict[str, Any], reference: str) -> None:
    engine.compile({"$ref": reference}, documents=documents)
    assert engine.accepts("null") and not engine.accepts("1")


def test_dialects(engine: Engine) -> None:
    """A document without `$schema` has the dialect of the schema, and a custom metaschema has its own one."""
    draft4, draft6 = ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#")
    documents: dict[str, Any] = {"https://a.example/b": {"enum": [1, 2], "const": 1}}
    for dialect, both in ((draft4, True), (draft6, False)):
        engine.compile({"$schema": dialect, "$ref": "https://a.example/b"}, documents=documents)
        assert engine.accepts("1") and engine.accepts("2") == both
    engine.compile(
        {"$schema": "https://a.example/meta", "enum": [1, 2], "const": 1},
        documents={"https://a.example/meta": {"$schema": draft4}},
    )
    assert engine.accepts("2")


@pytest.mark.parametrize(
    ("schema", "documents", "message"),
    [
        (
            {"$ref": "https://a.example/b"},
            {"https://a.example/c": True},
            "#/$ref: `https://a.example/b` refers to another document, which is not fetched: give it",
        ),
        (
            {"$ref": "https://a.example/b#/a"},
            {"https://a.example/b": True},
            "#/$ref: `https://a.example/b#/a` refers to nothing",
        ),
        (
            {"$ref": "https://a.example/b"},
            {"https://a.example/b": {"properties": {"a": {"type": "int"}}}},
            "https://a.example/b#/properties/a/type: one of null, boolean",
        ),
    ],
    ids=["missing", "nothing", "invalid"],
)
def test_refusals(engine: Engine, schema: Any, documents: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        engine.compile(schema, documents=documents)
    assert str(refused.value).startswith(message)
