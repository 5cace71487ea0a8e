"""Translates ECMAScript expressions for Python's `re`, since `jsonschema` passes them on unchanged."""

from __future__ import annotations

import functools
from typing import Any

import regex

#: what \s and . mean to ECMAScript with the flag u: code points from and to
_BLANKS = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)]
_BLANKS += [(0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
_ENDS = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_DIGITS = [(0x30, 0x39)]
_WORD = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_CLASSES = {"s": _BLANKS, "d": _DIGITS, "w": _WORD}


def _others(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), 0x10FFFF]
    return [(first, last) for first, last in zip(starts, ends, strict=True) if first <= last]


def _items(ranges: list[tuple[int, int]]) -> str:
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges)


@functools.cache
def _property(name: str) -> list[tuple[int, int]]:
    """The characters of a property of Unicode, such as `L` or `Script=Greek`."""
    everything = "".join(map(chr, range(0x110000)))
    return [(run.start(), run.end() - 1) for run in regex.finditer(rf"\p{{{name}}}+", everything)]


def in_python(pattern: str) -> str:
    """The same expression for `re`."""
    out, inside, i = "", False, 0
    while i < len(pattern):
        one = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        i += len(one)
        ranges = _CLASSES.get(one[1:].lower()) if one[0] == "\\" else None
        if one in (r"\p", r"\P") and pattern[i : i + 1] == "{":
            end = pattern.index("}", i)
            ranges, i = _property(pattern[i + 1 : end]), end + 1
        if ranges is not None:
            items = _items(ranges if one[1].islower() else _others(ranges))
            out += items if inside else f"[{items}]"
        elif not inside and one == ".":
            out += f"[{_items(_others(_ENDS))}]"
        elif not inside and one == "$":
            out += r"\Z"
        else:
            # within a class re warns of what may mean more one day
            out += "\\[" if inside and one == "[" else one
            inside = one == "[" or (inside and one != "]")
    return out


def translated(schema: Any) -> Any:
    """A schema with the expressions of its `pattern` and `patternProperties` for `re`."""
    if isinstance(schema, list):
        return [translated(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "pattern" and isinstance(value, str):
            made[name] = in_python(value)
        elif name == "patternProperties" and isinstance(value, dict):
            made[name] = {in_python(pattern): translated(one) for pattern, one in value.items()}
        elif name in ("enum", "const"):
            made[name] = value
        else:
            made[name] = translated(value)
    return made
