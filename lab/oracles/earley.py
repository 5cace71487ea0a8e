"""A plain Earley recogniser over single characters: slow, and too simple to be wrong in the same way."""

from __future__ import annotations

#: alternatives by name; every other symbol is a terminal of one character
Rules = dict[str, list[tuple[str, ...]]]
_Item = tuple[str, tuple[str, ...], int, int]


def _columns(rules: Rules, start: str, text: str) -> list[set[_Item]]:
    columns: list[set[_Item]] = [set() for _ in range(len(text) + 1)]
    columns[0] = {("", (start,), 0, 0)}
    for at, column in enumerate(columns):
        before = -1
        while before != len(column):
            before = len(column)
            for name, body, dot, origin in list(column):
                if dot == len(body):
                    column |= {
                        (n, b, d + 1, o) for n, b, d, o in columns[origin] if d < len(b) and b[d] == name
                    }
                elif body[dot] in rules:
                    column |= {(body[dot], tuple(alternative), 0, at) for alternative in rules[body[dot]]}
        if at < len(text):
            columns[at + 1] = {(n, b, d + 1, o) for n, b, d, o in column if d < len(b) and b[d] == text[at]}
    return columns


def accepts(rules: Rules, start: str, text: str) -> bool:
    """Is it a whole text?"""
    return ("", (start,), 1, 0) in _columns(rules, start, text)[-1]


def next_terminals(rules: Rules, start: str, text: str) -> set[str]:
    """Returns the terminals that may follow the beginning of a text. Every nonterminal must have a text."""
    return {b[d] for _, b, d, _ in _columns(rules, start, text)[-1] if d < len(b) and b[d] not in rules}
