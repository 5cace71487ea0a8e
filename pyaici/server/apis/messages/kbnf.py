"""Writing KBNF, and exchanging names in a grammar that somebody else has written."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
#: a comment, a quoted text, or a name; what a pattern begins with (#ex) is no name
_TOKEN = re.compile(
    # what is not closed goes on to the end: the controller will refuse it, and nothing is looked at twice
    r"""\(\*.*?(?:\*\)|\Z) | '(?:[^'\\]|\\.)*(?:'|\\?\Z) | "(?:[^"\\]|\\.)*(?:"|\\?\Z)
    | \#\w* | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def quoted(text: str) -> str:
    """In single quotes, on one line: a literal, or what stands behind ``#ex``."""
    inside = "".join(_ESCAPES.get(c, c if c >= " " else f"\\x{ord(c):02x}") for c in text)
    return f"'{inside}'"


def choice(texts: Iterable[str]) -> str:
    """One of these literals."""
    return " | ".join(quoted(text) for text in texts)


def without(texts: Iterable[str]) -> str:
    """A terminal: texts, not empty, in which none of these occurs."""
    return "#ex" + quoted("|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in texts))


def names(grammar: str) -> set[str]:
    """All names of rules, defined or only used."""
    return {found["name"] for found in _TOKEN.finditer(grammar) if found["name"]}


def renamed(grammar: str, old: str, new: str) -> str:
    """With another name for a rule; comments and quoted texts stay as they are."""
    return _TOKEN.sub(lambda found: new if found["name"] == old else found[0], grammar)


def free_name(like: str, taken: set[str]) -> str:
    """A name as long as this one, so that columns in messages stay right."""
    number = 0
    while (name := f"r{number:0{len(like) - 1}}") in taken:
        number += 1
    return name
