"""Formats in which models write tool calls: as JSON objects, or as names with JSON objects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyaici.server.answers.arguments import embedded
from pyaici.server.answers.calls import Cursor, NoCall, Waiting
from pyaici.server.answers.kbnf import Rule, Source, json_of, limited, one_of, quoted

#: schema of a tool without parameters
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
#: schema of a call's number
_NUMBER = {"type": "string", "pattern": "^[0-9]{1,3}$"}
#: ids of calls where they are short
_NINE = re.compile("[a-zA-Z0-9]{9}")
#: a text of JSON, or one other character
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]')
#: what the name of a function cannot contain
NOT_IN_NAMES = re.compile(r'[\s"<>]')


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the answer may call.

    `parameters`: the JSON Schema of its arguments. `place`: the field of the request that has the schema.
    """

    name: str
    parameters: Mapping[str, Any] | None = None
    description: str | None = None
    place: str = "tools"

    def source(self, pointer: str = "", shift: tuple[str, str] = ("", "")) -> Source:
        """Returns the source of a rule made from the schema."""
        return Source(
            f"the {self.place.rpartition('.')[2]} of the tool {self.name}", self.place, pointer, shift
        )

    def described(self) -> dict[str, Any]:
        """Returns the function as chat templates take it."""
        known = {"name": self.name, "description": self.description, "parameters": self.parameters}
        function = {name: value for name, value in known.items() if value is not None}
        return {"type": "function", "function": function}


def as_object(arguments: Any) -> Mapping[str, Any]:
    """Returns the arguments of a call by name; what is no object has the name `arguments`."""
    return arguments if isinstance(arguments, Mapping) else {"arguments": arguments}


@dataclass(frozen=True, slots=True)
class CallFormat:
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
    #: whether nothing follows the calls, though they have an end marker
    final: bool = False
    #: what templates may write before calls without markers: special tokens, which have no text
    before: tuple[str, ...] = ("",)
    #: the ids of calls must have nine letters and digits, as in templates of Mistral
    short_ids: bool = False
    #: what is written around the tools, where the template does not present them
    tool_marks: tuple[str, str] = ("<tools>\n", "\n</tools>")

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
                    self.arguments: embedded(function.parameters or _NO_PARAMETERS, number),
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

    def bound(self, functions: Sequence[Function]) -> CallFormat:
        """Returns the format for reading and writing calls of these functions."""
        return self

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[Rule]:
        """Returns rules of KBNF for what follows `begin`; the rule `call` is one of them.

        Raises ApiError if they are too long.
        """
        return list(limited(self._rules(functions, parallel=parallel), "tools"))

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[Rule]:
        yield Rule(f"call ::= {json_of(self.schema(functions, parallel=parallel))} {self._quoted_end};")

    @property
    def _quoted_end(self) -> str:
        return quoted(self.end) if self.end else ""

    def read(self, cursor: Cursor, *, checked: bool) -> Waiting:
        """Reads what follows `begin`, up to the end marker if there is one, into `Cursor.call`.

        `checked`: a grammar has ensured that values match their schemas. Blanks around marks do not matter.
        """
        value = yield from cursor.json()
        try:
            calls = value if self.listed else [value]
            found = [(str(call[self.name_key]), call[self.arguments]) for call in calls]
        except (TypeError, KeyError):
            raise NoCall from None
        for name, arguments in found:
            cursor.call(name, arguments)
        yield from self._read_end(cursor)

    def _read_end(self, cursor: Cursor) -> Waiting:
        if self.end:
            yield from cursor.mark(self.end)

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

        The description has no more quotes than these. Other formats are described in words of a template.
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
        listed = "\n".join(json.dumps(function.described(), ensure_ascii=False) for function in functions)
        begin, end = self.tool_marks
        return (
            f"You may call functions. These are there, each with a JSON Schema of its parameters:\n"
            f"{begin}{listed}{end}\n"
            f"To call one, write exactly this, and nothing after it:\n"
            f"{self.write([self._example])}"
        )


def _spaced(call: Any) -> str:
    """Returns a pattern of a JSON object without its last brace, with any blanks between its parts."""
    parts = _PART.findall(json.dumps(call, ensure_ascii=False)[:-1])
    return r"\s*".join(map(re.escape, parts))


@dataclass(frozen=True, slots=True)
class NamedFormat(CallFormat):
    """The format of calls that begin with the function's name; its arguments follow as a JSON object.

    All calls are between one pair of markers.
    """

    #: what is written before and after the name, after the arguments, and between two calls
    before_name: str = ""
    after_name: str = ""
    after_arguments: str = ""
    between: str = ""
    #: how the templates write a call, if they put its parts in another order; `NAME` is the name
    in_templates: str | None = None

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[Rule]:
        between = f"{quoted(self.between)} " if self.between else ""
        more = f"({between}one_call)*" if parallel else ""
        yield Rule(f"call ::= one_call {more} {self._quoted_end};")
        yield Rule(f"one_call ::= {one_of(f'call_{i}' for i in range(len(functions)))};")
        for i, function in enumerate(functions):
            begin = quoted(self.before_name + function.name + self.after_name)
            schema = json_of(function.parameters or _NO_PARAMETERS)
            end = quoted(self.after_arguments) if self.after_arguments else ""
            yield Rule(f"call_{i} ::= {begin} {schema} {end};", function.source())

    def read(self, cursor: Cursor, *, checked: bool) -> Waiting:
        """See `CallFormat.read`."""
        more = f"{self.between}{self.before_name}"
        if self.before_name:
            yield from cursor.mark(self.before_name)
        while True:
            name = yield from cursor.name(self.after_name.rstrip(), NOT_IN_NAMES)
            arguments = yield from cursor.json()
            if self.after_arguments:
                yield from cursor.mark(self.after_arguments)
            cursor.call(name, arguments)
            if not (yield from cursor.may_pass(more)):
                break
        yield from self._read_end(cursor)

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `CallFormat.write`."""
        bodies = [
            f"{self.before_name}{name}{self.after_name}{json.dumps(arguments, ensure_ascii=False)}"
            f"{self.after_arguments}"
            for name, arguments in calls
        ]
        return f"{self.begin}{self.between.join(bodies)}{self.end}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `CallFormat.is_written`."""
        own = self.in_templates or f"{self.begin}{self.before_name}NAME{self.after_name}"
        written = json.dumps(arguments, ensure_ascii=False)
        return bool(re.search(rf"{re.escape(own.replace('NAME', name))}\s*{re.escape(written)}", text))

    def is_shown(self, text: str) -> bool:
        """See `CallFormat.is_shown`."""
        return False
