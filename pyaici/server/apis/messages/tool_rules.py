"""The grammar of tool calls: rules for each tool, built from the schema of its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyaici.server.apis.messages.errors import MessagesError, invalid
from pyaici.server.apis.messages.kbnf import quoted
from pyaici.server.apis.messages.requests import Tool
from pyaici.server.apis.schemas import Property, arguments, has_references, listed, properties, standalone

END_OF_VALUE = "</parameter>"
#: characters that an argument's name may not have, since it is written into a tag
_NOT_IN_NAMES = frozenset('"<>\n')
#: keywords about several arguments at once; calls with one parameter each cannot enforce them
_JOINT = (
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "dependentRequired", "dependentSchemas"),
    *("dependencies", "patternProperties", "propertyNames", "$dynamicRef", "$recursiveRef"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the grammar, on one line.

    `argument`: what its schema describes, for errors. `shift`: (old, new) beginning of a JSON
    pointer into that schema, which turns it into a pointer into the tool's schema.
    """

    text: str
    argument: Argument | OutputSchema | None = None
    shift: tuple[str, str] = ("", "")

    def placed(self, reason: str) -> str:
        """Returns `reason` with its JSON pointer made relative to the tool's schema.

        In `reason`, the pointer leads into the schema of this rule.
        """
        old, new = "#" + self.shift[0], "#" + self.shift[1]
        if reason.startswith(old):
            return new + reason[len(old) :]
        # the reason is about the whole schema
        pointer = self.argument.property.pointer if isinstance(self.argument, Argument) else ""
        return f"#{pointer}{reason[1:]}"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the tool at `index` in the request."""

    index: int
    tool: Tool
    property: Property

    def refuse(self, reason: str) -> MessagesError:
        """Returns the error for a schema that no grammar is made for.

        `reason` begins with a JSON pointer, ``#/...: ...``.
        """
        return refusal(self.index, self.tool, reason)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON Schema of an answer in text."""

    schema: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The schema in JSON."""
        return _json(self.schema)

    def refuse(self, reason: str) -> MessagesError:
        """Returns the error for a schema that no grammar is made for."""
        return invalid(
            f"the schema of output_config.format is refused: {reason}", "output_config.format.schema"
        )


def refusal(index: int, tool: Tool, reason: str) -> MessagesError:
    """Returns the error that refuses the schema of the tool at `index`."""
    return invalid(
        f"the input_schema of the tool {tool.name} is refused: {reason}", f"tools.{index}.input_schema"
    )


def tool_rules(index: int, tool: Tool, name: str) -> Iterator[Rule]:
    """Yields rule `name` and the rules that it needs: a call with a parameter for each argument, in order.

    Optional arguments may be left out. The rules use a rule `any_text` for texts. Raises MessagesError if a
    schema cannot be enforced.
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
        raise refusal(index, tool, "#/$ref: this does not refer to an object with properties in the schema")
    names = {prop.name for prop in found}
    required = listed(top, "required")
    for name in required:
        if name not in names:
            raise refusal(
                index, tool, f"#{pointer}/required: {name} is required, but it is not in properties"
            )
    if _number(top, "minProperties", 0) > len(required):
        raise refusal(
            index, tool, f"#{pointer}/minProperties: more arguments than those in required cannot be enforced"
        )
    if _number(top, "maxProperties", len(found)) < len(found):
        raise refusal(
            index, tool, f"#{pointer}/maxProperties: fewer arguments than all properties cannot be enforced"
        )
    for prop in found:
        if not prop.name or _NOT_IN_NAMES & set(prop.name):
            raise refusal(
                index,
                tool,
                f"#{prop.pointer}: the name is written into a tag: it must not be empty, or contain "
                "quotation marks, <, > or line ends",
            )


def _number(schema: Mapping[str, Any], keyword: str, default: int) -> float:
    value = schema.get(keyword, default)
    return value if isinstance(value, int | float) else default


def _value(prop: Property) -> tuple[str, tuple[str, str]]:
    """Returns an expression for the values, and the shift of pointers into its schema (see `Rule`)."""
    if prop.is_text and _says_nothing_else(prop.schema):
        return "any_text?", ("", "")
    schema, shift = standalone(prop)
    if not prop.is_text:
        return "#json" + quoted(_json(schema)), shift
    # a text ends at the first END_OF_VALUE, so it cannot contain it
    excluded = {"not": {"pattern": END_OF_VALUE}}
    if has_references(prop.schema):  # these have to stay at the root
        return "#text" + quoted(_json({**schema, **excluded})), shift
    whole = {"allOf": [schema, excluded]}
    return "#text" + quoted(_json(whole)), ("/allOf/0" + shift[0], shift[1])


def _says_nothing_else(schema: Any) -> bool:
    """Tells whether a schema allows just any string."""
    remarks = {"title", "description", "default", "examples", "deprecated", "$comment", "type"}
    return schema.get("type") in ("string", ["string"]) and schema.keys() <= remarks


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
