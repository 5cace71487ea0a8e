"""Formats of tool calls in which each argument is written on its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.fields import limited
from pyaici.server.apis.openai.lark import lark_text
from pyaici.server.apis.openai.tool_format import ToolFormat, as_object
from pyaici.server.apis.schemas import Property, by_name, properties, standalone
from pyaici.server.apis.text import read_json, split_json

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Function


#: keywords of the schema of all arguments, and of that of a text between marks, that such formats can enforce
_PLAIN = frozenset(
    (
        *("$schema", "$defs", "definitions", "type", "properties", "required", "additionalProperties"),
        *("description", "title"),
    )
)
_PLAIN_TEXT = frozenset(("type", "enum", "description", "title", "default", "examples"))
#: a call's name, and the name of an argument, in the syntax of Python
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: values that Python writes differently from JSON
_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}
_WORD = re.compile("True|False|None")


@dataclass(frozen=True, slots=True)
class _ArgumentsFormat(ToolFormat):
    """The format of calls in which each argument is written on its own, in the order of the schema."""

    def supports(self, functions: Sequence[Function]) -> bool:
        """See `ToolFormat.supports`: each argument must have a schema of its own."""
        return all(self._is_plain(function.parameters or {}) for function in functions)

    def _is_plain(self, schema: Mapping[str, Any]) -> bool:
        found = properties(schema)
        required = set(schema.get("required", ()))
        if not schema.keys() <= _PLAIN or not required <= {prop.name for prop in found}:
            return False
        if schema.get("type", "object") != "object" or schema.get("additionalProperties"):
            return False
        return all(isinstance(prop.schema, dict) and self._is_writable(prop) for prop in found)

    def _is_writable(self, prop: Property) -> bool:
        """Returns whether the grammar of this argument's values can be written in this format."""
        raise NotImplementedError

    def rules(self, functions: Sequence[Function], *, parallel: bool) -> list[str]:
        """See `ToolFormat.rules`. Arguments are in the order of the schema. Raises ApiError for long ones."""
        return list(limited(self._rules(functions, parallel=parallel), "tools"))

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[str]:
        raise NotImplementedError

    def is_shown(self, text: str) -> bool:
        """Returns False: templates describe such formats in words of their own."""
        return False


def _json_rule(prop: Property) -> str:
    """Returns an expression of Lark for the values of an argument as JSON."""
    return f"%json {json.dumps(standalone(prop)[0], ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class TaggedFormat(_ArgumentsFormat):
    """The format of calls in which each argument is between marks of its own.

    Texts are written as they are, other values as JSON.
    """

    #: what is written around the name of the function, and around the name of an argument
    name_marks: tuple[str, str] = ("", "")
    key_marks: tuple[str, str] = ("", "")
    #: what ends a value, and all arguments
    end_of_value: str = ""
    end_of_arguments: str = ""
    #: arguments of the functions by name, to read their values
    known: Mapping[str, Mapping[str, Property]] = field(default_factory=dict)

    def _is_writable(self, prop: Property) -> bool:
        if not prop.name or set("<>\n") & set(prop.name):
            return False
        if not prop.is_text:
            return True
        values = prop.schema.get("enum", [])
        return prop.schema.keys() <= _PLAIN_TEXT and not any(self.end_of_value in text for text in values)

    @property
    def is_closed(self) -> bool:
        """See `ToolFormat.is_closed`. Without an end of the arguments, another one may follow."""
        return bool(self.end_of_arguments)

    def bound(self, functions: Sequence[Function]) -> ToolFormat:
        """See `ToolFormat.bound`."""
        return replace(self, known={each.name: by_name(each.parameters or {}) for each in functions})

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[str]:
        names = " | ".join(f"call_{i}" for i in range(len(functions)))
        yield f"call: ({names}) {lark_text(self.end)}"
        yield r"ANY: /(.|\n)*/"
        for i, function in enumerate(functions):
            parts = []
            for j, prop in enumerate(properties(function.parameters or {})):
                key, end = prop.name.join(self.key_marks), lark_text(self.end_of_value)
                part = f"argument_{i}_{j}"
                parts.append(part if prop.required else f"{part}?")
                if not prop.is_text:
                    value = f"{_json_rule(prop)} {end}"
                elif texts := prop.schema.get("enum"):
                    value = f"({' | '.join(map(lark_text, texts))}) {end}"
                else:
                    value = f"value_{i}_{j}"
                    yield f"{value}[lazy]: ANY {end}"
                yield f"{part}: {lark_text(key)} {value}"
            name = lark_text(function.name.join(self.name_marks))
            end = lark_text(self.end_of_arguments) if self.end_of_arguments else ""
            yield f"call_{i}: {name} {' '.join(parts)} {end}"

    def read(self, body: str) -> list[tuple[str, Any]]:
        """See `ToolFormat.read`."""
        before, after = self.name_marks
        name, mark, rest = body.removeprefix(before).partition(after)
        if not body.startswith(before) or not mark or not rest.endswith(self.end_of_arguments):
            raise ValueError("not a call")
        rest = rest[: len(rest) - len(self.end_of_arguments)]
        values: dict[str, Any] = {}
        begin, middle = self.key_marks
        while rest:
            key, mark, value = rest.removeprefix(begin).partition(middle)
            text, end, left = value.partition(self.end_of_value)
            if not rest.startswith(begin) or not mark or not end:
                raise ValueError("not a call")
            prop = self.known.get(name, {}).get(key)
            values[key] = prop.read(text) if prop else _guess(text)
            rest = left
        return [(name, values)]

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `ToolFormat.write`."""
        return "\n".join(f"{self.begin}{self._body(name, values)}{self.end}" for name, values in calls)

    def _body(self, name: str, values: Any) -> str:
        written = "".join(
            f"{key.join(self.key_marks)}"
            f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}{self.end_of_value}"
            for key, value in as_object(values).items()
        )
        return f"{name.join(self.name_marks)}{written}{self.end_of_arguments}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `ToolFormat.is_written`."""
        return self.write([(name, arguments)]) in text


def _guess(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class PythonicFormat(_ArgumentsFormat):
    """The format of calls in the syntax of Python: ``[name(key="text", other=3), second()]``.

    Values are JSON, except for True, False and None.
    """

    def supports(self, functions: Sequence[Function]) -> bool:
        """See `ToolFormat.supports`: names must be those of Python."""
        names = all(_NAME.fullmatch(function.name) for function in functions)
        return names and _ArgumentsFormat.supports(self, functions)

    def _is_writable(self, prop: Property) -> bool:
        return _KEY.fullmatch(prop.name) is not None

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[str]:
        names = " | ".join(f"call_{i}" for i in range(len(functions)))
        more = '(", " one_call)*' if parallel else ""
        yield f'call: "[" one_call {more} "]" {lark_text(self.end) if self.end else ""}'
        yield f"one_call: {names}"
        for i, function in enumerate(functions):
            arguments = properties(function.parameters or {})
            # what may follow an argument, and the arguments that may be the first one
            after = [f"rest_{i}_{j}" for j in range(1, len(arguments))] + [""]
            first = next((j for j, prop in enumerate(arguments) if prop.required), len(arguments))
            begins = [f"argument_{i}_{j} {after[j]}" for j in range(min(first + 1, len(arguments)))]
            optional = "?" if first == len(arguments) else ""
            inner = f"({' | '.join(begins)}){optional}" if begins else ""
            yield f'call_{i}: {lark_text(function.name + "(")} {inner} ")"'
            for j, prop in enumerate(arguments):
                yield f"argument_{i}_{j}: {lark_text(prop.name + '=')} {_python_rule(prop)}"
                if j:
                    yield f'rest_{i}_{j}: (", " argument_{i}_{j}){"" if prop.required else "?"} {after[j]}'

    def read(self, body: str) -> list[tuple[str, Any]]:
        """See `ToolFormat.read`."""
        calls, rest = [], _after(body.strip(), "[")
        while True:
            name = _matched(_NAME, rest)
            rest = _after(rest[len(name) :], "(")
            values: dict[str, Any] = {}
            while not rest.startswith(")"):
                rest = _after(rest, ",") if values else rest
                key = _matched(_KEY, rest)
                rest = _after(rest[len(key) :], "=")
                if word := _WORD.match(rest):
                    values[key], rest = _WORDS[word[0]], rest[word.end() :].lstrip()
                else:
                    values[key], rest = split_json(rest)
            calls.append((name, values))
            rest = _after(rest, ")")
            if rest == "]":
                return calls
            rest = _after(rest, ",")

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `ToolFormat.write`."""
        written = ", ".join(f"{name}({_python_arguments(values)})" for name, values in calls)
        return f"{self.begin}[{written}]{self.end}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `ToolFormat.is_written`; a template may put texts between single quotes."""
        written = self.write([(name, arguments)])
        return written in text or written.replace('"', "'") in text

    @property
    def _example(self) -> tuple[str, Any]:
        return "name_of_the_function", {"parameter": "value"}


def _python_rule(prop: Property) -> str:
    if prop.schema.get("type") == "boolean" and not {"enum", "const"} & prop.schema.keys():
        return '("True" | "False")'
    return f'({_json_rule(prop)} | "None")' if "null" in prop.types else _json_rule(prop)


def _python_arguments(values: Any) -> str:
    words = {id(value): word for word, value in _WORDS.items()}
    return ", ".join(
        f"{key}={words.get(id(value)) or json.dumps(value, ensure_ascii=False)}"
        for key, value in as_object(values).items()
    )


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if not (found := pattern.match(text)):
        raise ValueError("not a call")
    return found[0]


def _after(text: str, mark: str) -> str:
    """Returns what follows a mark and blanks. Raises ValueError if the text does not begin with the mark."""
    if not text.startswith(mark):
        raise ValueError("not a call")
    return text[len(mark) :].lstrip()
