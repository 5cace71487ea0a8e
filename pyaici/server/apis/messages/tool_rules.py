"""The grammar of calls: the rules for each tool, by the schema of its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pyaici.server.apis.messages.errors import MessagesError, invalid
from pyaici.server.apis.messages.kbnf import quoted
from pyaici.server.apis.messages.requests import Tool
from pyaici.server.apis.messages.schemas import Property, arguments, has_references, listed, properties

END_OF_VALUE = "</parameter>"
#: what a text may not have, if it is the name of an argument: it stands in a tag
_NOT_IN_NAMES = frozenset('"<>\n')
#: keywords about several arguments at once, which calls with one parameter for each cannot follow
_JOINT = (
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "dependentRequired", "dependentSchemas"),
    *("dependencies", "patternProperties", "propertyNames", "$dynamicRef", "$recursiveRef"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the grammar, on a line of its own.

    `argument`: what a schema in it is about, for errors. `shift`: the part of a JSON pointer into that schema
    that is replaced, and what by, to make it one into the schema of the tool.
    """

    text: str
    argument: Argument | None = None
    shift: tuple[str, str] = ("", "")

    def placed(self, reason: str) -> str:
        """`reason` begins with a JSON pointer into the schema in this rule; the same for that of the tool."""
        old, new = "#" + self.shift[0], "#" + self.shift[1]
        if reason.startswith(old):
            return new + reason[len(old) :]
        # it is about the whole
        return f"#{self.argument.property.pointer}{reason[1:]}" if self.argument else reason


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the tool with this number."""

    index: int
    tool: Tool
    property: Property

    def refuse(self, reason: str) -> MessagesError:
        """For a schema that no grammar is made for; `reason` begins with a JSON pointer, ``#/...: ...``."""
        return refusal(self.index, self.tool, reason)


def refusal(index: int, tool: Tool, reason: str) -> MessagesError:
    """Of the tool with this number."""
    return invalid(
        f"the input_schema of the tool {tool.name} is refused: {reason}", f"tools.{index}.input_schema"
    )


def tool_rules(index: int, tool: Tool, name: str) -> Iterator[Rule]:
    """`name` and the rules that it needs: a call with a parameter for each argument, in the schema's order.

    Those that are not required may be left out. Needs a rule `any_text` for texts. Raises MessagesError for
    what cannot be enforced.
    """
    parts = []
    found = properties(tool.input_schema)
    _check_arguments(index, tool, found)
    for number, prop in enumerate(found):
        value, shift = _value(prop)
        begin = quoted(f'    <parameter name="{prop.name}">')
        end = quoted(END_OF_VALUE + "\n")
        part = f"{name}_p{number}"
        yield Rule(f"{part} ::= {begin} {value} {end};", Argument(index, tool, prop), shift)
        parts.append(part if prop.required else part + "?")
    begin, end = quoted(f'  <invoke name="{tool.name}">\n'), quoted("  </invoke>\n")
    yield Rule(f"{name} ::= {' '.join([begin, *parts, end])};")


def _check_arguments(index: int, tool: Tool, found: list[Property]) -> None:
    pointer, top = arguments(tool.input_schema)
    for keyword in _JOINT:
        if keyword in top:
            raise refusal(
                index, tool, f"#{pointer}/{keyword}: this cannot be enforced on all arguments together"
            )
    if pointer == "" and "$ref" in top:
        raise refusal(index, tool, "#/$ref: this leads to no object with properties in the schema")
    names = {prop.name for prop in found}
    required = listed(top, "required")
    for name in required:
        if name not in names:
            raise refusal(
                index, tool, f"#{pointer}/required: {name} is required, but it is none of the properties"
            )
    if _number(top, "minProperties", 0) > len(required):
        raise refusal(index, tool, f"#{pointer}/minProperties: only what is in required can be enforced")
    if _number(top, "maxProperties", len(found)) < len(found):
        raise refusal(index, tool, f"#{pointer}/maxProperties: that not all are given cannot be enforced")
    for prop in found:
        if not prop.name or _NOT_IN_NAMES & set(prop.name):
            raise refusal(
                index,
                tool,
                f"#{prop.pointer}: the name stands in a tag, so it has no quotation mark, < and >",
            )


def _number(schema: Mapping[str, Any], keyword: str, default: int) -> float:
    value = schema.get(keyword, default)
    return value if isinstance(value, int | float) else default


def _value(prop: Property) -> tuple[str, tuple[str, str]]:
    """An expression for the values, and how pointers into its schema are to be shifted (see `Rule`)."""
    if prop.is_text and _says_nothing_else(prop.schema):
        return "any_text?", ("", "")
    schema, shift = standalone(prop)
    if not prop.is_text:
        return "#json" + quoted(_json(schema)), shift
    # a text ends where END_OF_VALUE first comes, so it cannot have that inside
    whole = {"allOf": [schema, {"not": {"pattern": END_OF_VALUE}}]}
    return "#text" + quoted(_json(whole)), ("/allOf/0" + shift[0], shift[1])


def standalone(prop: Property) -> tuple[Any, tuple[str, str]]:
    """A schema for one argument that needs nothing around it, and how pointers into it are to be shifted.

    References lead anywhere in the schema of all arguments, so that comes along, as a resource with an id.
    """
    dialect = {key: prop.root[key] for key in ("$schema",) if key in prop.root}
    if not has_references(prop.schema):
        if not isinstance(prop.schema, dict):
            return prop.schema, ("", prop.pointer)
        return {**dialect, **prop.schema}, ("", prop.pointer)
    name = str(prop.root.get("$id", "urn:arguments")).rstrip("#")
    reference = {"$ref": f"{name}#{quote(prop.pointer)}"}
    return {**dialect, "allOf": [reference], "definitions": {"all": {**prop.root, "$id": name}}}, (
        "/definitions/all",
        "",
    )


def _says_nothing_else(schema: Any) -> bool:
    """Is it just any string?"""
    remarks = {"title", "description", "default", "examples", "deprecated", "$comment", "type"}
    return schema.get("type") in ("string", ["string"]) and schema.keys() <= remarks


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
