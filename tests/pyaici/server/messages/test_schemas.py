"""Arguments of tools: the values that schemas allow, and the schemas that are refused."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import pytest

from lab.oracles.grammars.walk import Controller
from pyaici.server.answers.arguments import properties
from pyaici.server.answers.formats import Function
from pyaici.server.answers.known_formats import GLM4, PYTHONIC
from pyaici.server.apis.messages import MessagesError, Plan, plan
from pyaici.server.http.errors import ApiError
from tests.pyaici.server.messages.bodies import call, calls, request, strings, tool

Make = Callable[[Plan], Controller]

DEFS = {
    "$defs": {
        "name": {"type": "string", "enum": ["ann", "bob"]},
        "tree": {
            "type": "object",
            "properties": {"of": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["of"],
            "additionalProperties": False,
        },
        "other": {"$ref": "#/properties/n"},
    }
}


def with_schema(schema: dict[str, Any], **fields: Any) -> Plan:
    return plan(request(tools=[tool("f", schema)], bnf_validation="schema_aware", **fields))


def one(schema: Any, **around: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], **around}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "Tokyo", '"Tokyo"', "1 < 2\n\\n", "</param", "5"], ["</parameter>"]),
        (
            {"type": "string", "enum": ["a b", "it's", '"', "1\n2"]},
            ["a b", "it's", '"', "1\n2"],
            ['"a b"', "a"],
        ),
        ({"enum": ["celsius", "kelvin"]}, ["celsius"], ['"celsius"', ""]),
        ({"const": "yes"}, ["yes"], ["no", '"yes"']),
        ({"type": "string", "pattern": r"^\d+$"}, ["12"], ["", "a", '"12"']),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", '"\n\\', "äöü"], ["a", "abcd"]),
        ({"type": "string", "minLength": 1, "maxLength": 9999}, ["<p>" * 30], ["", "a</parameter>b"]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "today"]),
        ({"type": "string", "format": "email"}, ["a.b@example.org"], ["a b"]),
        ({"type": "string", "title": "X", "description": "y", "default": "z"}, ["", "a"], []),
        ({"type": "integer"}, ["0", "-12"], ["1.5", '"1"', "01", "", " 1"]),
        ({"type": "integer", "minimum": 1, "maximum": 10}, ["1", "10"], ["0", "11"]),
        ({"type": "number"}, ["1.5", "-2", "1e5"], ["NaN", "1.", "a"]),
        ({"type": "boolean"}, ["true", "false"], ["True", "1", '"true"']),
        ({"type": "null"}, ["null"], ["None", ""]),
        ({"type": "array"}, ["[]", "[1, 2]", '["</parameter>", {}]'], ["[1 ,2]", "[1,]", "1"]),
        (
            {"type": "array", "items": {"type": "string"}},
            ['["a\\nb", "\\u001f"]'],
            ["[1]", '["a\nb"]', "[a]"],
        ),
        ({"type": "object"}, ["{}", '{"a": 1, "b": {}}'], ['{,"b":1}', "{a: 1}"]),
        ({}, ["1", '"a"', "null", "[]", "{}"], ["a", ""]),
        (True, ["1", '"a"'], ["a"]),
        ({"type": ["string", "null"]}, ['"a"', "null"], ["a", "1"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ['"a"', "null"], ["a"]),
        ({"anyOf": [{"const": "a"}, {"type": "string", "pattern": "^b+$"}]}, ["a", "bb"], ['"a"', "ab"]),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, ["1", "true"], ["null"]),
        ({"type": "string", "enum": ["a", "b</parameter>"]}, ["a"], ["b", "b</parameter>"]),
        ({"$ref": "#/$defs/name"}, ["ann", "bob"], ['"ann"', "eve"]),
        ({"$ref": "#/$defs/tree"}, ['{"of": []}', '{"of": [{"of": []}]}'], ["{}", '{"of": [1]}']),
        ({"type": "array", "items": {"$ref": "#/$defs/other"}}, ["[3]"], ["[4]", '["a"]']),
    ],
)
def test_schema_decides_which_values_are_accepted(
    grammar: Make, schema: Any, good: list[str], bad: list[str]
) -> None:
    around = {"properties": {"x": schema, "n": {"const": 3}}, "required": ["x"], "type": "object", **DEFS}
    controller = grammar(with_schema(around))
    assert [value for value in good if not controller.accepts(calls(call("f", ("x", value))))] == []
    assert [value for value in bad if controller.accepts(calls(call("f", ("x", value))))] == []


@pytest.mark.parametrize(
    "name", ["user-id", "a b", "1", "it's", "a\\n", "é", "a/b~c", "%41", "$ref", "a&b=c"]
)
def test_argument_names_may_have_almost_any_character(grammar: Make, name: str) -> None:
    for schema in ({"type": "integer"}, {"$ref": "#/$defs/a"}):
        around = {"properties": {name: schema}, "required": [name], "$defs": {"a": {"type": "integer"}}}
        controller = grammar(with_schema(around))
        assert controller.accepts(calls(call("f", (name, "5"))))
        assert not controller.accepts(calls(call("f", (name, "a"))))


@pytest.mark.parametrize(
    "dialect", ["draft-04/schema#", "draft-07/schema#", "draft-06/schema#", "draft/2020-12/schema"]
)
def test_dialects_of_json_schema(grammar: Make, dialect: str) -> None:
    schema = {
        "$schema": f"http{'s' * ('2020' in dialect)}://json-schema.org/{dialect}",
        **one({"$ref": "#/definitions/a"}),
        "definitions": {"a": {"type": "array", "items": {"type": "integer"}}},
    }
    controller = grammar(with_schema(schema))
    assert controller.accepts(calls(call("f", ("x", "[1]"))))
    assert not controller.accepts(calls(call("f", ("x", '["a"]'))))


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
def test_reference_at_the_top_is_followed(grammar: Make, dialect: dict[str, Any]) -> None:
    schema = {"$ref": "#/$defs/all", "$defs": {"all": one({"type": "array", "items": {"$ref": "#/$defs/a"}})}}
    schema |= dialect
    schema["$defs"]["a"] = {"type": "integer"}
    controller = grammar(with_schema(schema))
    assert controller.accepts(calls(call("f", ("x", "[1]"))))
    assert not controller.accepts(calls(call("f", ("x", "[true]")))) and not controller.accepts(
        calls(call("f"))
    )


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        (one({}, anyOf=[{}]), "#/anyOf: this cannot be enforced"),
        (one({}, patternProperties={"^x": {}}), "#/patternProperties: "),
        (one({}, dependentRequired={"x": ["y"]}), "#/dependentRequired: "),
        (one({}, minProperties=2), "#/minProperties: "),
        ({**strings("x", "y"), "maxProperties": 1}, "#/maxProperties: "),
        ({"properties": {}, "required": ["y"]}, "#/required: y is required"),
        ({"$ref": "#/$defs/none"}, "#/$ref: "),
        ({"properties": {'a"b': {}}}, '#/properties/a"b: '),
        ({"properties": {"": {}}}, "#/properties/: "),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {}, "not": {}}}}, "#/$defs/a/not: "),
    ],
)
def test_keywords_about_several_arguments_are_refused(schema: dict[str, Any], part: str) -> None:
    with pytest.raises(MessagesError) as caught:
        with_schema(schema)
    error = caught.value
    assert error.status == 400 and error.param == "tools.0.input_schema"
    assert error.message.startswith("the input_schema of the tool f is refused: ") and part in error.message


def test_keywords_without_effect_are_accepted() -> None:
    with_schema(one({}, minProperties=1, maxProperties=1, additionalProperties=False, title="X"))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            one({"type": "array", "not": {"uniqueItems": True}}),
            "#/properties/x/not/uniqueItems: the negation of uniqueItems",
        ),
        (one({"type": "string", "format": "date_time"}), "#/properties/x/format: this format is not known"),
        (
            one({"type": "string", "pattern": "(a)\\1"}),
            "#/properties/x/pattern: the pattern is not supported",
        ),
        (one({"type": "int"}), "#/properties/x/type: one of null, boolean"),
        (one({"$ref": "#/$defs/b"}), "#/properties/x/$ref: `#/$defs/b` refers to nothing"),
        (
            one({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "array", "not": {"uniqueItems": True}}}}),
            "#/$defs/a/not/uniqueItems: the negation of uniqueItems",
        ),
        (
            one({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "string", "format": "date_time"}}}),
            "#/$defs/a/format: this format is not known",
        ),
        (one({"type": "string", "enum": ["</parameter>"]}), "#/properties/x: no value meets this schema"),
        (one(False), "#/properties/x: no value meets this schema"),
    ],
)
def test_refused_schema_is_named_with_its_place(grammar: Make, schema: dict[str, Any], reason: str) -> None:
    """The error has the tool's name and the place in its schema, not a place in the generated grammar."""
    tools = [tool("first", strings("a")), tool("second", schema)]
    made = plan(request(tools=tools, bnf_validation="schema_aware"))
    error = made.refused(grammar(made).refusal())
    assert error.status == 400 and error.param == "tools.1.input_schema"
    assert error.message.startswith("the input_schema of the tool second is refused: ")
    assert reason in error.message and "line" not in error.message and "definitions" not in error.message


def test_types_of_arguments() -> None:
    def types(schema: Any) -> set[str]:
        return set(properties(one(schema, **DEFS))[0].types)

    everything = {"string", "integer", "number", "boolean", "null", "array", "object"}
    assert types({}) == types(True) == types({"$ref": "#/$defs/none"}) == everything
    assert types({"type": "number"}) == {"number", "integer"}
    assert types({"$ref": "#/$defs/name"}) == types({"allOf": [{"$ref": "#/$defs/name"}, {}]}) == {"string"}
    assert types({"anyOf": [{"type": "null"}, {"const": "a"}]}) == {"null", "string"}
    assert types({"type": ["string", "integer"], "enum": ["a", "b"]}) == {"string"}
    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert set(properties(one({"$ref": "#/$defs/a"}, **loop))[0].types) == everything
    for malformed in ({"anyOf": 5}, {"enum": 5}, {"allOf": {"a": 1}}, {"$ref": 5}, {"type": 5}):
        types(malformed)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "42", "42"),
        ({"type": "string"}, " a ", " a "),
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, "many", "many"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, '"null"', "null"),
        ({"type": ["string", "null"]}, "Tokyo", "Tokyo"),
        ({"type": ["string", "null"]}, "42", "42"),
        ({"type": ["string", "integer"]}, "42", 42),
        ({}, "[1]", [1]),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "array"}, "[" * 100_000, "[" * 100_000),
    ],
)
def test_unchecked_values_are_read_leniently(schema: Any, text: str, value: Any) -> None:
    read = properties(one(schema))[0].read(text)
    assert read == value and type(read) is type(value)


def shared(definition: dict[str, Any], count: int = 1000) -> dict[str, Any]:
    """Returns a schema of many arguments that have one definition in common."""
    named = {f"p{number}": {"$ref": "#/$defs/x"} for number in range(count)}
    return {"type": "object", "$defs": {"x": definition}, "properties": named}


WIDE = {"anyOf": [{"type": "string"}] * 1000}


def test_a_schema_does_not_become_a_huge_grammar() -> None:
    """Each of these thousand arguments has the whole schema in its rule: 50 MB."""
    start = thread_time()
    with pytest.raises(ApiError, match="more than 1048576 characters"):
        with_schema(shared(WIDE))
    function = Function(name="f", parameters=shared({"type": "integer", "title": "long " * 10_000}))
    for form in (GLM4, PYTHONIC):
        with pytest.raises(ApiError, match="more than 1048576 characters"):
            form.rules([function], parallel=True)
    assert thread_time() - start < 3  # 0.2 s; it took 40 s


@pytest.mark.parametrize(
    "definition", [WIDE, {"enum": list(range(300_000))}, {"$ref": "#" + "/" * 1_000_000}]
)
def test_types_of_arguments_that_share_a_definition_take_little_work(definition: dict[str, Any]) -> None:
    start = thread_time()
    for prop in properties(shared(definition)):
        assert prop.types
    assert thread_time() - start < 1  # milliseconds; it took 2 to 80 s


def test_a_plain_argument_stays_one_after_complex_ones() -> None:
    schema = shared(WIDE)
    schema["properties"]["last"] = {"type": "string"}
    assert [prop.is_text for prop in properties(schema)][-1]
