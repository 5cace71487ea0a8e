"""Helpers that write KBNF, and rename rules in a grammar of the user."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
#: a comment, a quoted text, or a name; the prefix of a pattern (#ex) is not a name
_TOKEN = re.compile(
    # unclosed text extends to the end: the controller refuses it, and nothing is scanned twice
    r"""\(\*.*?(?:\*\)|\Z) | '(?:[^'\\]|\\.)*(?:'|\\?\Z) | "(?:[^"\\]|\\.)*(?:"|\\?\Z)
    | \#\w* | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def quoted(text: str) -> str:
    """Returns a text in single quotes, on one line: a literal, or what follows ``#ex``."""
    inside = "".join(_ESCAPES.get(c, c if c >= " " else f"\\x{ord(c):02x}") for c in text)
    return f"'{inside}'"


def choice(texts: Iterable[str]) -> str:
    """Returns an alternative of these literals."""
    return " | ".join(quoted(text) for text in texts)


def without(texts: Iterable[str]) -> str:
    """Returns a terminal that matches non-empty texts in which none of these occurs."""
    return "#ex" + quoted("|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in texts))


def names(grammar: str) -> set[str]:
    """Returns all names of rules, defined or only used."""
    return {found["name"] for found in _TOKEN.finditer(grammar) if found["name"]}


def renamed(grammar: str, old: str, new: str) -> str:
    """Returns the grammar with a rule renamed; comments and quoted texts stay unchanged."""
    return _TOKEN.sub(lambda found: new if found["name"] == old else found[0], grammar)


def free_name(like: str, taken: set[str]) -> str:
    """Returns an unused name of the same length, so that columns in error messages stay right."""
    number = 0
    while (name := f"r{number:0{len(like) - 1}}") in taken:
        number += 1
    return name
