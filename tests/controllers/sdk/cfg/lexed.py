"""Random grammars that are read as by a lexer, and call rules that are read anywhere, with their texts.

A text is cut into pieces. One is a lexeme, or a whole text of a rule that is read anywhere. Where lexemes may
begin, all that are possible there in any reading are read at the same time, until none of them can go on or
one that ends early is complete. What is ignored is a lexeme that is possible wherever a piece begins, and at
the end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from hypothesis import assume
from hypothesis import strategies as st

from . import brute
from . import engine as e

#: maximum length of compared texts; a beginning of a pattern's text needs at most two more bytes
LONGEST = 4
_ALL = ["".join(word) for size in range(LONGEST + 3) for word in itertools.product("abc", repeat=size)]
WORDS = [word for word in _ALL if len(word) <= LONGEST]

PATTERNS = ("a*", "[ab]+c", "a?b?", "(ab)*", "[ab]", "a{2,3}", "[a-c]+", "a+", "b[ac]?", "c")
IGNORED = ("c", "c+", "b", "[bc]+a", "a?c")
_MAX_READINGS = 400


@dataclass(frozen=True)
class Piece:
    """`begins` are the beginnings of its texts, if it is a lexeme."""

    texts: brute.Texts
    begins: brute.Texts | None = None
    early: bool = False

    @property
    def shortest(self) -> int:
        return min(map(len, self.texts), default=LONGEST + 1)


#: stands for all that begins beyond LONGEST, and so no longer matters
_MORE = Piece(frozenset())

Reading = tuple[Piece, ...]
Readings = frozenset[Reading]
_EMPTY: Readings = frozenset([()])


@dataclass(frozen=True)
class Part:
    """An expression for the engine, and the pieces of its derivations if those of the rules are known."""

    expr: e.Expr
    readings: Callable[[list[Readings]], Readings]


@cache
def _lexeme(pattern: str, *, early: bool) -> Piece:
    texts = {word for word in _ALL if word and re.fullmatch(pattern, word)}
    if early:
        texts = {t for t in texts if not any(t[:i] in texts for i in range(1, len(t)))}
    begins = {text[:size] for text in texts for size in range(1, LONGEST + 1)}
    return Piece(frozenset(t for t in texts if len(t) <= LONGEST), frozenset(begins), early)


def _terminal(pattern: str, kind: str) -> Part:
    lexeme = _lexeme(pattern, early=kind == "early")
    expr = {"lit": e.lit, "regex": e.regex, "early": e.early}[kind](pattern)
    found: Readings = frozenset([(lexeme,)])
    if kind == "regex" and re.fullmatch(pattern, ""):
        found |= _EMPTY
    return Part(expr, lambda _: found)


def terminals() -> st.SearchStrategy[Part]:
    texts = st.sampled_from(["a", "b", "c", "ab", "ac"]).map(lambda t: _terminal(t, "lit"))
    patterns = st.builds(_terminal, st.sampled_from(PATTERNS), st.sampled_from(["regex", "early"]))
    return st.one_of(texts, patterns)


def _calls(rules: int, others: list[brute.Texts]) -> st.SearchStrategy[Part]:
    """Returns calls of rules, and of the rules after them, which are read anywhere."""

    def one(rule: int) -> Part:
        if rule < rules:
            return Part(e.call(rule), lambda known: known[rule])
        texts = others[rule - rules]
        assume(texts)
        value = Piece(frozenset(t for t in texts if t and len(t) <= LONGEST))
        found: Readings = frozenset([(value,)]) | (_EMPTY if "" in texts else frozenset())
        return Part(e.call(rule), lambda _: found)

    return st.integers(0, rules + len(others) - 1).map(one)


def _cut(reading: Reading) -> Reading:
    begin = 0
    for i, piece in enumerate(reading):
        if begin >= LONGEST:
            return (*reading[:i], _MORE)
        begin += piece.shortest
    return reading


def _joined(left: Readings, right: Readings) -> Readings:
    found = {_cut(a + b) for a in left for b in right}
    assume(len(found) <= _MAX_READINGS)
    return frozenset(found)


def _sequence(parts: list[Part]) -> Part:
    def readings(known: list[Readings]) -> Readings:
        made = _EMPTY
        for part in parts:
            made = _joined(made, part.readings(known))
        return made

    return Part(e.sequence(*(part.expr for part in parts)), readings)


def _choice(parts: list[Part]) -> Part:
    return Part(
        e.choice(*(part.expr for part in parts)),
        lambda known: frozenset().union(*(part.readings(known) for part in parts)),
    )


def _repeated(part: Part, least: int) -> Part:
    def readings(known: list[Readings]) -> Readings:
        one, now, found = part.readings(known), _EMPTY, frozenset[Reading]()
        for count in range(least + LONGEST + 1):
            found |= now if count >= least else frozenset()
            now = _joined(now, one)
        return found

    return Part(e.repeat(part.expr, least), readings)


def _parts(rules: int, others: list[brute.Texts]) -> st.SearchStrategy[Part]:
    return st.recursive(
        terminals() | _calls(rules, others),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(_sequence),
            st.lists(inner, min_size=2, max_size=3).map(_choice),
            st.builds(_repeated, inner, st.integers(0, 1)),
        ),
        max_leaves=6,
    )


@dataclass(frozen=True)
class Grammar:
    """A grammar: its rules, of which the last `anywhere` are read anywhere, and its ignored text."""

    rules: list[e.Expr]
    anywhere: int
    ignored: str | None
    readings: Readings = field(repr=False)

    def accepts(self, text: str) -> bool:
        ignored = {_lexeme(self.ignored, early=False)} if self.ignored else set[Piece]()
        at = [set[tuple[Reading, int]]() for _ in range(len(text) + 1)]
        at[0] = {(reading, 0) for reading in self.readings}
        for place, live in enumerate(at[:-1]):
            rest = text[place:]
            possible = {reading[i] for reading, i in live if i < len(reading)}
            size, lexemes = _read({p for p in possible if p.begins is not None} | ignored, rest)
            for reading, i in live:
                if lexemes & ignored:
                    at[place + size].add((reading, i))
                piece = reading[i] if i < len(reading) else None
                if piece in lexemes:
                    at[place + size].add((reading, i + 1))
                elif piece is not None and piece.begins is None:
                    for n in range(1, len(rest) + 1):
                        if rest[:n] in piece.texts:
                            at[place + n].add((reading, i + 1))
        return any(i == len(reading) for reading, i in at[-1])


def _read(lexemes: set[Piece], text: str) -> tuple[int, set[Piece]]:
    """How long a lexeme is at the start of the text, and which ones it may be."""
    longest = 0, {p for p in lexemes if "" in p.texts}
    for size in range(1, len(text) + 1):
        read = text[:size]
        if early := {p for p in lexemes if p.early and read in p.texts}:
            return size, early
        if complete := {p for p in lexemes if read in p.texts}:
            longest = size, complete
        if not any(read in (p.begins or ()) for p in lexemes):
            break
    return longest


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    count = draw(st.integers(1, 3))
    others = draw(brute.grammars(2, first=count))
    inner = _parts(count, brute.short_texts(others))
    rules = draw(st.lists(inner, min_size=count, max_size=count))
    known: list[Readings] = [frozenset() for _ in rules]
    while (new := [rule.readings(known) for rule in rules]) != known:
        known = new
    exprs = [rule.expr for rule in rules] + [other.expr for other in others]
    return Grammar(exprs, len(others), draw(st.none() | st.sampled_from(IGNORED)), known[0])
