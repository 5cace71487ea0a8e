"""Schemas that refer to other documents, which come with the request."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused

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


OLD = "http://json-schema.org/draft-04/schema#"
SEVEN = "http://json-schema.org/draft-07/schema#"
LATER = "https://json-schema.org/draft/2019-09/schema"
K = {"enum": ["v"]}


def _alike(reference: str, definitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns a schema of objects with "v" in `a`."""
    return {"properties": {"a": {"$ref": reference}}, "definitions": definitions, **more}


ID = "https://a.example/t"
ANCHORED = {"t": {"properties": {"a": {"$ref": "#k"}}}, "k": {"$anchor": "k", **K}}
ALIKE: list[dict[str, Any]] = [
    _alike("#/definitions/k", {"k": K}, **{"$schema": OLD}),
    _alike("t#k", {"k": {"id": "#k", **K}}, **{"$schema": OLD, "id": ID}),
    {
        "$schema": SEVEN,
        "$ref": "#/definitions/t",
        "definitions": {"t": _alike("#/definitions/k", {}), "k": K},
    },
    _alike("other#/definitions/k", {"o": {"$id": "other", "definitions": {"k": K}}}, **{"$schema": SEVEN}),
    _alike("t#k", {"k": {"$anchor": "k", **K}}, **{"$id": ID}),
    {"$id": "tool:0", "$ref": "#/$defs/t", "$defs": ANCHORED},
    _alike("#/definitions/k", {"k": K}, **{"$id": "tool:0"}),
    _alike("#k", {"k": {"$anchor": "k", **K}}, **{"$schema": LATER}),
]


def _other(schema: Any) -> Any:
    """Returns the schema with the same names for other values."""
    return json.loads(json.dumps(schema).replace('"v"', '"w"'))


@pytest.mark.parametrize("second", range(len(ALIKE)))
@pytest.mark.parametrize("first", range(len(ALIKE)))
def test_schemas_keep_their_names_and_drafts_in_another_one(engine: Engine, first: int, second: int) -> None:
    """Identifiers and anchors of the schemas may be equal."""
    schemas = {"one": ALIKE[first], "two": _other(ALIKE[second])}
    engine.compile(
        {"type": "object", "properties": schemas, "required": [*schemas], "additionalProperties": False}
    )
    for one, two in itertools.product("vw", repeat=2):
        text = json.dumps({"one": {"a": one}, "two": {"a": two}})
        assert engine.accepts(text) == ((one, two) == ("v", "w")), text


@pytest.mark.parametrize("schema", ALIKE)
def test_such_a_schema_is_one_by_itself(engine: Engine, schema: dict[str, Any]) -> None:
    engine.compile(schema)
    assert engine.accepts('{"a": "v"}') and not engine.accepts('{"a": "w"}')
