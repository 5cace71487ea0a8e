"""The format in which a model writes tool calls, and its form with JSON objects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.openai.lark import lark_text
from pyaici.server.apis.schemas import embedded
from pyaici.server.apis.text import read_json

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function


#: schema of a tool without parameters
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
#: schema of a call's number
_NUMBER = {"type": "string", "pattern": "^[0-9]{1,3}$"}
#: ids of calls where they are short
_NINE = re.compile("[a-zA-Z0-9]{9}")
#: a text of JSON, or one other character
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]')


def as_object(arguments: Any) -> Mapping[str, Any]:
    """Returns the arguments of a call by name; what is no object has the name `arguments`."""
    return arguments if isinstance(arguments, Mapping) else {"arguments": arguments}


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The format of calls: JSON objects with the keys `name` and `arguments`, between `begin` and `end`.

    Without markers the whole answer is calls, or has none: its first character decides. Without an end marker
    the rest of the answer is calls.
    """

    name: str
    begin: str
    end: str
    #: keys of the name and of the arguments, and of the call's number in texts, if it has one
    name_key: str = "name"
    arguments: str = "arguments"
    number_key: str | None = None
    #: whether a list of calls is between the markers, not one call
    listed: bool = False
    #: what templates may write before calls without markers: special tokens, which have no text
    before: tuple[str, ...] = ("",)
    #: the ids of calls must have nine letters and digits, as in templates of Mistral
    short_ids: bool = False
    #: what is written around the tools, where the template does not present them
    tool_marks: tuple[str, str] = ("<tools>\n", "\n</tools>")

    @property
    def is_closed(self) -> bool:
        """Whether a call shows by itself that it is complete, without the end marker."""
        return True

    @property
    def first(self) -> str:
        """The first character between the markers."""
        return "[" if self.listed else "{"

    @property
    def _example(self) -> tuple[str, Any]:
        """The call that shows a model the format."""
        return "<name of the function>", {"<parameter>": "<value>"}

    def schema(self, functions: Sequence[Function], *, parallel: bool) -> dict[str, Any]:
        """Returns the JSON Schema of what is between the markers."""
        calls = [
            {
                "type": "object",
                "properties": {
                    **({self.number_key: _NUMBER} if self.number_key else {}),
                    self.name_key: {"const": function.name},
                    self.arguments: embedded(function.parameters or NO_PARAMETERS, number),
                },
                "required": [*filter(None, [self.number_key]), self.name_key, self.arguments],
                "additionalProperties": False,
            }
            for number, function in enumerate(functions)
        ]
        call: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if not self.listed:
            return call
        schema = {"type": "array", "items": call, "minItems": 1}
        return schema if parallel else {**schema, "maxItems": 1}

    def supports(self, functions: Sequence[Function]) -> bool:
        """Returns whether the grammar of these functions' calls can be written in this format."""
        return True

    def bound(self, functions: Sequence[Function]) -> ToolFormat:
        """Returns the format for reading calls of these functions."""
        return self

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[str]:
        """Returns rules of Lark for what follows `begin`; the rule `call` is the first one."""
        schema = json.dumps(self.schema(functions, parallel=parallel), ensure_ascii=False)
        return [f"call: %json {schema} {lark_text(self.end) if self.end else ''}"]

    def read(self, body: str) -> list[tuple[str, Any]]:
        """Returns the calls (name, arguments) between the markers. Raises ValueError for anything else."""
        value: Any = read_json(body)
        try:
            calls = value if self.listed else [value]
            return [(str(call[self.name_key]), call[self.arguments]) for call in calls]
        except (TypeError, KeyError):
            raise ValueError("not a call") from None

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Returns calls (name, arguments) as a model writes them."""
        values = [self._object(number, name, values) for number, (name, values) in enumerate(calls)]
        bodies: list[Any] = [values] if self.listed else values
        return "\n".join(f"{self.begin}{json.dumps(body, ensure_ascii=False)}{self.end}" for body in bodies)

    def _object(self, number: int, name: str, arguments: Any) -> dict[str, Any]:
        numbered = {self.number_key: str(number)} if self.number_key else {}
        return {**numbered, self.name_key: name, self.arguments: arguments}

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """Tells whether a template has written this call in this format; it may also give the call an id."""
        call = _spaced(self._object(0, name, arguments))
        listed = r"\[\s*" if self.listed else ""
        before = "|".join(map(re.escape, self.before))
        return bool(re.search(rf"(?:{before})\s*{re.escape(self.begin)}\s*{listed}{call}\s*[,}}]", text))

    def is_shown(self, text: str) -> bool:
        """Tells whether a template describes this format, as ``{"name": <name>, "arguments": ...``.

        The description has no more quotes than these.
        """
        begin = re.escape(self.begin + "[" * self.listed)
        return bool(re.search(rf'{begin}\{{"name": [^"{{}}\n]+, "{self.arguments}":', text))

    def call_id(self, given: str | None) -> str | None:
        """Returns a call's id as templates accept it."""
        if not self.short_ids or _NINE.fullmatch(given or ""):
            return given
        return hashlib.sha256((given or "").encode("utf-8", "replace")).hexdigest()[:9]

    def describe(self, functions: Sequence[Function]) -> str:
        """Returns a part of the system message, for models whose template does not present tools."""
        listed = "\n".join(
            json.dumps(
                {"type": "function", "function": function.model_dump(exclude_none=True, exclude={"strict"})},
                ensure_ascii=False,
            )
            for function in functions
        )
        begin, end = self.tool_marks
        return (
            f"You may call functions. These are there, each with a JSON Schema of its parameters:\n"
            f"{begin}{listed}{end}\n"
            f"To call one, write exactly this, and nothing behind it:\n"
            f"{self.write([self._example])}"
        )


def _spaced(call: Any) -> str:
    """Returns a pattern of a JSON object without its last brace, with any blanks between its parts."""
    parts = _PART.findall(json.dumps(call, ensure_ascii=False)[:-1])
    return r"\s*".join(map(re.escape, parts))
