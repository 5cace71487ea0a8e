"""Translates a yacc grammar with an inline lexer (docs/grammars.md) into llguidance's dialect of Lark.

A rule that has only keywords and patterns becomes a terminal; any other becomes a rule. A keyword becomes a
string, and a pattern a regular expression. Precedences are left out: they select a parse of an ambiguous
text, and the language stays nearly the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<directive>%[a-z]+)
    |(?P<number>[0-9]+)
    |(?P<mark>%%|[:|;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b", "0": "\0"}
_SKIP = "SKIP"


class _Word(NamedTuple):
    kind: str
    text: str


class _Grammar(NamedTuple):
    start: str
    #: alternatives of each rule
    rules: dict[str, list[list[_Word]]]


def lark_of_yacc(text: str) -> str:
    """Returns the grammar in Lark. Raises ValueError if `text` is not a grammar."""
    grammar = _read(text)
    names = {name: _name(name, alternatives) for name, alternatives in grammar.rules.items()}
    lines = [f"start: {names[grammar.start]}"]
    for name in sorted(_used(grammar)):
        alternatives = [" ".join(_symbol(word, names) for word in a) or '""' for a in grammar.rules[name]]
        lines.append(f"{names[name]}: " + "\n    | ".join(alternatives))
    for (word,) in grammar.rules.get(_SKIP, []):
        lines.append(f"%ignore {_symbol(word, names)}")
    return "\n".join(lines) + "\n"


def _words(text: str) -> Iterator[_Word]:
    """Yields the words up to the second `%%`."""
    at = parts = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise ValueError(
                f"line {text.count(chr(10), 0, at) + 1}: not a word of a grammar: {text[at : at + 20]!r}"
            )
        at = match.end()
        assert match.lastgroup is not None
        parts += match.group() == "%%"
        if parts == 2:
            return
        if match.lastgroup != "blank":
            yield _Word(match.lastgroup, match.group())


def _read(text: str) -> _Grammar:
    words = list(_words(text))
    middle = words.index(_Word("mark", "%%"))
    start = next((words[i + 1].text for i in range(middle) if words[i].text == "%start"), None)
    rules: dict[str, list[list[_Word]]] = {}
    name, alternative, skipping = "", [], False
    for word in words[middle + 1 :]:
        if word == _Word("mark", ":"):
            name = alternative.pop().text
            rules.setdefault(name, [])
        elif word.text in "|;" and word.kind == "mark":
            rules[name].append(alternative)
            alternative = []
        elif word.text == "%prec":
            skipping = True
        elif skipping:
            skipping = False
        elif word.text != "%empty":
            alternative.append(word)
    start = start or next((name for name in rules if name != _SKIP), None)
    if start is None:
        raise ValueError("the grammar has no rules")
    return _Grammar(start, rules)


def _used(grammar: _Grammar) -> set[str]:
    """Returns the rules that can be reached from the start rule."""
    found, todo = {grammar.start}, [grammar.start]
    while todo:
        for alternative in grammar.rules[todo.pop()]:
            for word in alternative:
                if word.kind == "name" and word.text not in found:
                    found.add(word.text)
                    todo.append(word.text)
    return found


def _name(name: str, alternatives: list[list[_Word]]) -> str:
    """Returns the name of a rule in Lark, where terminals have capital letters."""
    terminal = all(len(symbols) == 1 and symbols[0].kind == "quoted" for symbols in alternatives)
    return f"T_{name.upper()}" if terminal else f"r_{name.lower()}"


def _symbol(word: _Word, names: dict[str, str]) -> str:
    if word.kind == "name":
        return names[word.text]
    body = word.text[1:-1]
    if len(body) > 2 and body.startswith("/") and body.endswith("/"):
        return "/" + _pattern(body[1:-1], word.text[0]) + "/"
    return json.dumps(re.sub(r"\\(x[0-9a-fA-F]{2}|.)", lambda match: _unescape(match[1]), body))


def _unescape(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) == 3 else _ESCAPES.get(escape, escape)


def _pattern(pattern: str, quote: str) -> str:
    """Escapes slashes, which end a regular expression in Lark, and removes the escape of the quote."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "/":
            return r"\/"
        return quote if match[0] == f"\\{quote}" else match[0]

    return re.sub(r"\\.|/", replace, pattern, flags=re.DOTALL)
