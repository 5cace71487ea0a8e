"""Helpers that write KBNF: texts, patterns, and rules that know which schema they are made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyaici.server.http.errors import bad_request

#: any text, and any blanks
ANY_TEXT, BLANKS = r"#'[\s\S]*'", r"#'[ \t\r\n]*'"
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
#: most characters of a grammar, as of any controller's argument
MAX_GRAMMAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """The schema that a rule is made from, for errors.

    `name`: what it is. `place`: the field of the request that has it. `pointer`: the JSON pointer of the part
    that the rule is about. `shift`: (old, new) beginning of a pointer into the rule's schema, which turns it
    into one into the field.
    """

    name: str
    place: str
    pointer: str = ""
    shift: tuple[str, str] = ("", "")

    def placed(self, reason: str) -> str:
        """Returns a reason, ``#/...: ...`` in the rule's schema, with a pointer into the field instead."""
        old, new = "#" + self.shift[0], "#" + self.shift[1]
        # else it is about the whole schema
        return new + reason[len(old) :] if reason.startswith(old) else f"#{self.pointer}{reason[1:]}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the grammar, on one line."""

    text: str
    source: Source | None = None


def limited(rules: Iterable[Rule], param: str) -> Iterator[Rule]:
    """Yields rules of one grammar. Raises ApiError as soon as they are too long for it.

    A small schema may become a long grammar, which must not be written before its length is known.
    """
    length = 0
    for rule in rules:
        length += len(rule.text)
        if length > MAX_GRAMMAR:
            raise bad_request(f"the grammar of the tools has more than {MAX_GRAMMAR} characters", param)
        yield rule


def quoted(text: str) -> str:
    """Returns a text in single quotes, on one line: a literal, or what follows ``#ex``."""
    inside = "".join(_ESCAPES.get(c, c if c >= " " else f"\\x{ord(c):02x}") for c in text)
    return f"'{inside}'"


def literal(text: str) -> str:
    """Returns a regular expression that matches this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def without(texts: Iterable[str], pattern: str = "") -> str:
    """Returns a terminal that matches non-empty texts in which none of these occurs.

    `pattern`: a regular expression that matches no part of the texts either.
    """
    return "#ex" + quoted("|".join([*map(literal, texts), *([pattern] if pattern else [])]))


def until(*marks: str) -> str:
    """Returns an expression of any text up to the first of these marks, which ends it."""
    return f"({without(marks)})? {one_of(map(quoted, marks))}"


def json_of(schema: Any, *, plain: bool = False) -> str:
    """Returns an expression of the JSON texts of a schema, which may also be given as JSON.

    `plain`: of its strings, without quotes and escapes.
    """
    text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    return ("#text" if plain else "#json") + quoted(text)


def one_of(expressions: Iterable[str]) -> str:
    """Returns an alternative of these expressions."""
    listed = list(expressions)
    return listed[0] if len(listed) == 1 else f"({' | '.join(listed)})"
