"""Captures of grammars in KBNF: the texts of named rules."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest

from aicirt.contract.errors import ControllerFailed
from tests.controllers.grammars.expressions import (
    Call,
    Choice,
    Expr,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    derive,
    nullable,
    random_grammar,
    random_terminals,
)
from tests.controllers.grammars.vocabularies import LETTERS
from tests.controllers.grammars.walk import Controller
from tests.controllers.kbnf.write import kbnf

Make = Callable[[str], Controller]
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


def argument(grammar: str, *rules: str) -> str:
    return json.dumps({"kbnf": grammar, "rules": rules})


def by_name(captures: Captures) -> dict[str, list[str]]:
    return {name: [text for other, text in captures if other == name] for name, _ in captures}


@pytest.mark.parametrize("seed", range(3))
def test_captures_are_those_of_a_reading(extract: Make, seed: int) -> None:
    """Random grammars, ambiguous ones and left-recursive ones among them."""
    rng, compared = random.Random(seed), 0
    while compared < 60:
        rules = random_grammar(rng, "start", random_terminals(rng, LETTERS))
        made, text = extract(argument(kbnf(rules), *rules)), ""
        try:
            guest = made.start()
        except ControllerFailed:
            continue
        state = made.state(guest, [])
        while not state.over and len(text) < 6:
            byte = rng.choice(state.next)
            text += chr(byte)
            state = made.state(guest, [byte])
        if not state.over:
            continue
        try:
            readings = [
                by_name(captures)
                for captures in Readings(rules, text).of(Call("start"), 0, len(text), frozenset())
            ]
        except TooMany:
            continue
        found = made.captures(guest)
        assert found["start"][-1] == text
        assert found in readings, (kbnf(rules), text)
        compared += 1


def test_all_captures_of_a_name_are_numbered(extract: Make) -> None:
    made = extract(argument("start ::= list '.'; list ::= list ',' item | item; item ::= #'[a-z]+';", "item"))
    guest = made.run("ab,c.")
    assert {name: value for name, (_, value) in guest.variables.items()} == {
        b"item": b"c",
        b"item[0]": b"ab",
        b"item[1]": b"c",
    }
    assert made.captures(made.run("ab.")) == {"item": ["ab"]}


def test_an_incomplete_text_has_no_captures(extract: Make) -> None:
    guest = extract(argument("start ::= item '.'; item ::= #'[a-z]+';", "item")).run("ab", end=False)
    assert not guest.variables


def test_captures_of_a_text_with_too_many_readings_are_left_out(extract: Make) -> None:
    made = extract(argument("start ::= list '.'; list ::= item list | item; item ::= #'[a-z]';", "item"))
    assert made.captures(made.run("a" * 100 + ".")) == {"item": ["a"] * 100}
    guest = made.run("a" * 1000 + ".")
    assert not guest.variables
    assert "warning: the text is too long to find its captures" in guest.take_log()


def test_the_number_of_captures_is_limited(extract: Make) -> None:
    made = extract(argument("start ::= item* '.'; item ::= #'[a-z]';", "item"))
    guest = made.run("ab" * 150 + ".")
    assert made.captures(guest) == {"item": ["a", "b"] * 128}
    assert "only the first 256 captures of 300 are written" in guest.take_log()
