"""Formats of tool calls in which each argument is written on its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyaici.server.answers.arguments import (
    Property,
    arguments,
    by_name,
    guess_json,
    has_references,
    listed,
    properties,
    standalone,
)
from pyaici.server.answers.calls import Cursor, NoCall, Waiting
from pyaici.server.answers.formats import NOT_IN_NAMES, CallFormat, Function, as_object
from pyaici.server.answers.kbnf import Rule, json_of, literal, one_of, quoted, until

#: keywords about several arguments at once, which cannot be enforced where each is written on its own
_JOINT = (
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "dependentRequired", "dependentSchemas"),
    *("dependencies", "patternProperties", "propertyNames", "$dynamicRef", "$recursiveRef"),
)
#: keywords that a schema of any text may have
_REMARKS = {"title", "description", "default", "examples", "deprecated", "$comment", "type"}
#: a call's name, and the name of an argument, in the syntax of Python
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_CHARACTERS = re.compile(r"[\w.]*")
#: values that Python writes differently from JSON
_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}
#: keywords that make a schema of others
_COMBINED = {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "$recursiveRef"}


@dataclass(frozen=True, slots=True)
class _ArgumentsFormat(CallFormat):
    """The format of calls in which each argument is written on its own, in the order of the schema."""

    def problem(self, function: Function) -> str | None:
        """Returns why no grammar is made for a function, as ``#/...: ...`` in its schema; None if one is."""
        schema = function.parameters or {}
        pointer, top = arguments(schema)
        for keyword in _JOINT:
            if keyword in top:
                return f"#{pointer}/{keyword}: this cannot be enforced on all arguments together"
        if pointer == "" and "$ref" in top:
            return "#/$ref: this does not refer to an object with properties in the schema"
        found = properties(schema)
        names = {prop.name for prop in found}
        required = listed(top, "required")
        for name in required:
            if name not in names:
                return f"#{pointer}/required: {name} is required, but it is not in properties"
        if _number(top, "minProperties", 0) > len(required):
            return f"#{pointer}/minProperties: more arguments than those in required cannot be enforced"
        if _number(top, "maxProperties", len(found)) < len(found):
            return f"#{pointer}/maxProperties: fewer arguments than all properties cannot be enforced"
        for prop in found:
            if (reason := self._unwritable(prop)) is not None:
                return f"#{prop.pointer}: {reason}"
        return None

    def _unwritable(self, prop: Property) -> str | None:
        """Returns why no grammar is made for an argument; None if one is."""
        raise NotImplementedError

    def supports(self, functions: Sequence[Function]) -> bool:
        """See `CallFormat.supports`. An argument that no property declares cannot be written."""
        return not any(
            self.problem(function) or arguments(function.parameters or {})[1].get("additionalProperties")
            for function in functions
        )

    def is_shown(self, text: str) -> bool:
        """See `CallFormat.is_shown`."""
        return False


def _number(schema: Mapping[str, Any], keyword: str, default: int) -> float:
    value = schema.get(keyword, default)
    return value if isinstance(value, int | float) else default


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


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
    #: arguments of the functions by name, to read and write their values
    known: Mapping[str, Mapping[str, Property]] = field(default_factory=dict)

    def _unwritable(self, prop: Property) -> str | None:
        if prop.name and not self._not_in_keys.search(prop.name):
            return None
        return (
            "the name is written into a tag: it must not be empty, or contain "
            f"{'quotation marks, ' if self._is_quoted else ''}<, > or line ends"
        )

    @property
    def _is_quoted(self) -> bool:
        return '"' in self.key_marks[1]

    @property
    def _not_in_keys(self) -> re.Pattern[str]:
        return re.compile('["<>\n]' if self._is_quoted else "[<>\n]")

    def bound(self, functions: Sequence[Function]) -> CallFormat:
        """See `CallFormat.bound`."""
        return replace(self, known={each.name: by_name(each.parameters or {}) for each in functions})

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[Rule]:
        yield self._list_rule(parallel=parallel)
        yield Rule(f"one_call ::= {one_of(f'call_{i}' for i in range(len(functions)))};")
        for i, function in enumerate(functions):
            parts = []
            for j, prop in enumerate(properties(function.parameters or {})):
                part, key = f"argument_{i}_{j}", quoted(prop.name.join(self.key_marks))
                parts.append(part if prop.required else f"{part}?")
                value, shift = self._value(prop)
                yield Rule(f"{part} ::= {key} {value};", function.source(prop.pointer, shift))
            name = quoted(function.name.join(self.name_marks))
            end = quoted(self.end_of_arguments) if self.end_of_arguments else ""
            yield Rule(f"call_{i} ::= {name} {' '.join(parts)} {end};")

    def _list_rule(self, *, parallel: bool) -> Rule:
        more = "+" if self.listed and parallel else ""
        return Rule(f"call ::= one_call{more} {self._quoted_end};")

    def _value(self, prop: Property) -> tuple[str, tuple[str, str]]:
        """Returns an expression for a value and its end, and the shift of pointers into its schema.

        See `Source`.
        """
        if prop.is_text and prop.schema.keys() <= _REMARKS:
            return until(self.end_of_value), ("", "")
        schema, shift = standalone(prop)
        end = quoted(self.end_of_value)
        if not prop.is_text:
            return f"{json_of(schema)} {end}", shift
        # a text ends at the first end_of_value, so it cannot contain it
        excluded = {"not": {"pattern": literal(self.end_of_value)}}
        if has_references(prop.schema):  # these have to stay at the root
            return f"{json_of({**schema, **excluded}, plain=True)} {end}", shift
        combined = json_of({"allOf": [schema, excluded]}, plain=True)
        return f"{combined} {end}", ("/allOf/0" + shift[0], shift[1])

    def loose_rules(self, name: str | None, *, parallel: bool) -> list[Rule]:
        """Returns rules as `rules` does, for calls whose arguments are not checked.

        `name`: the only function that may be called; None = any.
        """
        begin, middle = map(quoted, self.name_marks)
        key_begin, key_middle = map(quoted, self.key_marks)
        end = quoted(self.end_of_arguments) if self.end_of_arguments else ""
        named = "#'[a-zA-Z0-9_-]+'" if name is None else quoted(name)
        return [
            self._list_rule(parallel=parallel),
            Rule(f"one_call ::= {begin} {named} {middle} argument* {end};"),
            Rule(f"argument ::= {key_begin} #'[^\"<>\\n]+' {key_middle} {until(self.end_of_value)};"),
        ]

    def read(self, cursor: Cursor, *, checked: bool) -> Waiting:
        """See `CallFormat.read`. Without a check, each value ends at the first mark that ends values."""
        begin, middle = self.name_marks
        marks = self.key_marks[0], self.end_of_arguments or self.end
        while True:
            if self.listed and (yield from cursor.mark(begin, self.end)) == self.end:
                return
            if begin and not self.listed:
                yield from cursor.mark(begin)
            name = yield from cursor.name(middle.rstrip() or middle, NOT_IN_NAMES)
            values: dict[str, Any] = {}
            while (yield from cursor.mark(*marks)) == self.key_marks[0]:
                key = yield from cursor.name(self.key_marks[1], self._not_in_keys)
                prop = self.known.get(name, {}).get(key)
                if checked and prop is not None and not prop.is_text:
                    values[key] = yield from cursor.json()
                    yield from cursor.mark(self.end_of_value)
                else:
                    text = yield from cursor.until(self.end_of_value)
                    values[key] = prop.read(text) if prop else guess_json(text)
            cursor.call(name, values)
            if not self.listed:
                break
        if self.end_of_arguments:
            yield from self._read_end(cursor)

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `CallFormat.write`."""
        bodies = [self._body(name, values) for name, values in calls]
        if self.listed:
            return f"{self.begin}{''.join(bodies)}{self.end}"
        return "\n".join(f"{self.begin}{body}{self.end}" for body in bodies)

    def _body(self, name: str, values: Any) -> str:
        known = self.known.get(name, {})
        written = ""
        for key, value in as_object(values).items():
            if key in known:
                text = known[key].written(value)
            else:
                text = value if isinstance(value, str) else _json(value)
            written += f"{key.join(self.key_marks)}{text}{self.end_of_value}"
        return f"{name.join(self.name_marks)}{written}{self.end_of_arguments}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `CallFormat.is_written`."""
        return self.write([(name, arguments)]) in text


@dataclass(frozen=True, slots=True)
class PythonicFormat(_ArgumentsFormat):
    """The format of calls in the syntax of Python: ``[name(key="text", other=3), second()]``.

    Values are JSON, except for True, False and None.
    """

    def problem(self, function: Function) -> str | None:
        """See `_ArgumentsFormat.problem`: names must be those of Python."""
        if not _NAME.fullmatch(function.name):
            return "#: the tool's name is none of Python's"
        return _ArgumentsFormat.problem(self, function)

    def _unwritable(self, prop: Property) -> str | None:
        return None if _KEY.fullmatch(prop.name) else "the name is none of Python's"

    def _rules(self, functions: Sequence[Function], *, parallel: bool) -> Iterator[Rule]:
        more = "(', ' one_call)*" if parallel else ""
        yield Rule(f"call ::= '[' one_call {more} ']' {self._quoted_end};")
        yield Rule(f"one_call ::= {one_of(f'call_{i}' for i in range(len(functions)))};")
        for i, function in enumerate(functions):
            found = properties(function.parameters or {})
            # what may follow an argument, and the arguments that may be the first one
            after = [f"rest_{i}_{j}" for j in range(1, len(found))] + [""]
            first = next((j for j, prop in enumerate(found) if prop.required), len(found))
            begins = [f"argument_{i}_{j} {after[j]}" for j in range(min(first + 1, len(found)))]
            optional = "?" if first == len(found) else ""
            inner = f"{one_of(begins)}{optional}" if begins else ""
            yield Rule(f"call_{i} ::= {quoted(function.name + '(')} {inner} ')';")
            for j, prop in enumerate(found):
                value, shift = _python_value(prop)
                source = function.source(prop.pointer, shift)
                yield Rule(f"argument_{i}_{j} ::= {quoted(prop.name + '=')} {value};", source)
                if j:
                    optional = "" if prop.required else "?"
                    yield Rule(f"rest_{i}_{j} ::= (', ' argument_{i}_{j}){optional} {after[j]};")

    def read(self, cursor: Cursor, *, checked: bool) -> Waiting:
        """See `CallFormat.read`."""
        mark = yield from cursor.mark("[")
        while mark != "]":
            name = yield from cursor.word(_NAME_CHARACTERS)
            if not _NAME.fullmatch(name):
                raise NoCall
            yield from cursor.mark("(")
            values: dict[str, Any] = {}
            while not (yield from cursor.may_pass(")")):
                if values:
                    yield from cursor.mark(",")
                key = yield from cursor.word(_NAME_CHARACTERS)
                if not _KEY.fullmatch(key):
                    raise NoCall
                yield from cursor.mark("=")
                for word, value in _WORDS.items():
                    if (yield from cursor.may_pass(word)):
                        values[key] = value
                        break
                else:
                    values[key] = yield from cursor.json()
            cursor.call(name, values)
            mark = yield from cursor.mark(",", "]")
        yield from self._read_end(cursor)

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """See `CallFormat.write`."""
        written = ", ".join(f"{name}({_python_arguments(values)})" for name, values in calls)
        return f"{self.begin}[{written}]{self.end}"

    def is_written(self, text: str, name: str, arguments: Any) -> bool:
        """See `CallFormat.is_written`; a template may put texts between single quotes."""
        written = self.write([(name, arguments)])
        return written in text or written.replace('"', "'") in text

    @property
    def _example(self) -> tuple[str, Any]:
        return "name_of_the_function", {"parameter": "value"}


def _python_value(prop: Property) -> tuple[str, tuple[str, str]]:
    """Returns an expression for the values, and the shift of pointers into its schema (see `Source`)."""
    schema, shift = standalone(prop)
    words = ["None"] if "null" in prop.types else []
    if not isinstance(prop.schema, dict) or not _COMBINED & prop.schema.keys():
        words = [word for word, value in _WORDS.items() if _allows(prop, value)]
    if prop.types == {"boolean"} and words:  # as the format has it, not `true` and `false`
        return one_of(map(quoted, words)), shift
    return one_of([json_of(schema), *map(quoted, words)]), shift


def _allows(prop: Property, value: Any) -> bool:
    """Tells whether a schema that is not combined of others allows a value."""
    if ("null" if value is None else "boolean") not in prop.types:
        return False
    named = prop.schema if isinstance(prop.schema, dict) else {}
    listed = [*named.get("enum", ()), *([named["const"]] if "const" in named else [])]
    return not listed or any(item is value for item in listed)


def _python_arguments(values: Any) -> str:
    words = {id(value): word for word, value in _WORDS.items()}
    return ", ".join(
        f"{key}={words.get(id(value)) or _json(value)}" for key, value in as_object(values).items()
    )
