"""The readings of a text by a grammar, found by trying all of them."""

from __future__ import annotations

from collections.abc import Iterator

from lab.oracles.grammars.expressions import (
    Call,
    Choice,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    derive,
    nullable,
)

#: the captures of a reading, in the order of their ends
Captures = tuple[tuple[str, str], ...]


class TooMany(Exception):
    """There are too many readings to list."""


class Readings:
    """Lists the readings of short texts."""

    def __init__(self, grammar: Grammar, text: str) -> None:
        self._grammar, self._text, self._left = grammar, text, 5_000

    def of(self, expr: Expr, i: int, j: int, inside: frozenset[tuple[str, int, int]]) -> Iterator[Captures]:
        """Yields the captures of each reading of text[i:j]."""
        self._left -= 1
        if self._left < 0:
            raise TooMany
        if isinstance(expr, Terminal):
            regex = expr.regex
            for letter in self._text[i:j]:
                regex = derive(regex, letter)
            if nullable(regex):
                yield ()
        elif isinstance(expr, Call):
            place = (expr.name, i, j)
            if place not in inside:
                for found in self.of(self._grammar[expr.name], i, j, inside | {place}):
                    yield (*found, (expr.name, self._text[i:j]))
        elif isinstance(expr, Choice):
            for part in expr.parts:
                yield from self.of(part, i, j, inside)
        elif isinstance(expr, Sequence):
            yield from self._sequence(expr.parts, i, j, inside)
        else:
            yield from self._repeat(expr, 0, i, j, inside)

    def _sequence(
        self, parts: tuple[Expr, ...], i: int, j: int, inside: frozenset[tuple[str, int, int]]
    ) -> Iterator[Captures]:
        if not parts:
            if i == j:
                yield ()
            return
        for k in range(i, j + 1):
            for first in self.of(parts[0], i, k, inside):
                for rest in self._sequence(parts[1:], k, j, inside):
                    yield first + rest

    def _repeat(
        self, expr: Repeat, count: int, i: int, j: int, inside: frozenset[tuple[str, int, int]]
    ) -> Iterator[Captures]:
        if i == j and count >= expr.least:
            yield ()
        if expr.most is not None and count == expr.most:
            return
        # empty parts only as far as they count
        next_count = min(count + 1, expr.most or max(expr.least, 1))
        for k in range(i if next_count != count else i + 1, j + 1):
            for first in self.of(expr.part, i, k, inside):
                for rest in self._repeat(expr, next_count, k, j, inside):
                    yield first + rest


def by_name(captures: Captures) -> dict[str, list[str]]:
    return {name: [text for other, text in captures if other == name] for name, _ in captures}
