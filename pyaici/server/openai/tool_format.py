"""How models write calls of tools: each family in its own way."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.openai.requests import Function

#: what a tool without parameters takes
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
#: the ids of calls that the templates of Mistral take
_NINE = re.compile("[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls stand between `begin` and `end`: JSON objects with the keys `name` and `arguments`.

    Without marks the whole answer is calls, or has none: its first character tells.
    """

    name: str
    begin: str
    end: str
    #: the key of the arguments
    arguments: str = "arguments"
    #: between the marks is a list of calls, not one
    listed: bool = False
    #: what templates write in front of calls that have no marks: special tokens, which are no text
    before: str = ""

    @property
    def first(self) -> str:
        """The first character between the marks."""
        return "[" if self.listed else "{"

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

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """Whether a template has written this call so; it may give it an id besides."""
        call = json.dumps({"name": name, self.arguments: arguments}, ensure_ascii=False)[:-1]
        written = re.escape(self.begin + "[" * self.listed + call)
        return bool(re.search(rf"{re.escape(self.before)}\s*{written}[,}}]", text))

    def is_shown(self, text: str) -> bool:
        """Whether a template says how to call: ``{"name": <name>, "arguments": ...``, with no more quotes."""
        begin = re.escape(self.begin + "[" * self.listed)
        return bool(re.search(rf'{begin}\{{"name": [^"{{}}\n]+, "{self.arguments}":', text))

    def call_id(self, given: str | None) -> str | None:
        """The id of a call as templates take it: those of Mistral refuse any that has not nine characters."""
        if self is not MISTRAL or _NINE.fullmatch(given or ""):
            return given
        return hashlib.sha256((given or "").encode("utf-8", "replace")).hexdigest()[:9]

    def describe(self, functions: Sequence[Function]) -> str:
        """For models whose template does not tell them of tools: a part of the system message."""
        listed = "\n".join(
            json.dumps(
                {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})},
                ensure_ascii=False,
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
MISTRAL = ToolFormat("mistral", "", "", listed=True, before="[TOOL_CALLS]")
LLAMA3 = ToolFormat("llama3", "", "", arguments="parameters", before="<|end_header_id|>")
FORMATS = {found.name: found for found in (HERMES, SMOLLM2, MISTRAL, LLAMA3)}
