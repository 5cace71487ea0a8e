"""How models write calls of tools: each family in its own way, found by its template for chats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.openai.requests import Function

#: what a tool without parameters takes
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls stand between `begin` and `end`: JSON objects with the keys `name` and `arguments`."""

    name: str
    begin: str
    end: str
    #: the key of the arguments
    arguments: str = "arguments"
    #: between the marks is a list of calls, not one
    listed: bool = False

    def schema(self, functions: Sequence[Function], *, parallel: bool) -> dict[str, Any]:
        """A JSON Schema of what stands between the marks."""
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": function.name},
                    self.arguments: function.parameters or _NOTHING,
                },
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for function in functions
        ]
        call: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if not self.listed:
            return call
        schema = {"type": "array", "items": call, "minItems": 1}
        return schema if parallel else {**schema, "maxItems": 1}

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Calls (name, arguments) as a model writes them."""
        values = [{"name": name, self.arguments: arguments} for name, arguments in calls]
        bodies: list[Any] = [values] if self.listed else values
        return "\n".join(f"{self.begin}{json.dumps(body, ensure_ascii=False)}{self.end}" for body in bodies)

    def describe(self, functions: Sequence[Function]) -> str:
        """For models whose template does not tell them of tools: a part of the system message."""
        listed = "\n".join(
            json.dumps(
                {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})}
            )
            for function in functions
        )
        example: Any = {"name": "<name of the function>", self.arguments: {"<parameter>": "<value>"}}
        if self.listed:
            example = [example]
        return (
            f"You may call functions. These are there, each with a JSON Schema of its parameters:\n"
            f"<tools>\n{listed}\n</tools>\n"
            f"To call one, write exactly this, and nothing behind it:\n"
            f"{self.begin}{json.dumps(example)}{self.end}"
        )


HERMES = ToolFormat("hermes", "<tool_call>\n", "\n</tool_call>")
SMOLLM2 = ToolFormat("smollm2", "<tool_call>", "</tool_call>", listed=True)
LLAMA3 = ToolFormat("llama3", "", "", arguments="parameters")
FORMATS = {found.name: found for found in (HERMES, SMOLLM2, LLAMA3)}


def find_format(template: str) -> ToolFormat:
    """The format of the family that has such a template for chats."""
    if "<|python_tag|>" in template or "<|start_header_id|>" in template:
        return LLAMA3
    if "SmolLM" in template:
        return SMOLLM2
    return HERMES


def knows_tools(template: str) -> bool:
    """Whether the template tells the model of tools itself, in the format that `find_format` finds.

    Templates of families that are not known here, with marks of their own, would tell it of another one.
    """
    form = find_format(template)
    marks = ("<|python_tag|>", '"parameters"') if form is LLAMA3 else (form.begin.strip(),)
    return "tools" in template and any(mark in template for mark in marks)
