"""Lexemes are the longest that match, as lexers make them: against a lexer in a few lines."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from tests.controllers.sdk.cfg.engine import Engine, Expr, call, choice, lit, regex, repeat

WORDS = [bytes(word) for size in range(7) for word in itertools.product(b"a1.- ", repeat=size)]


def lexemes(text: str, patterns: list[str]) -> list[set[int]] | None:
    """Returns the terminals of each lexeme, without the last pattern; None if a lexeme matches none."""
    found = []
    while text:
        matches = [
            max((n for n in range(1, len(text) + 1) if re.fullmatch(p, text[:n])), default=0)
            for p in patterns
        ]
        size = max(matches)
        if not size:
            return None
        kinds = {i for i, n in enumerate(matches) if n == size}
        if len(patterns) - 1 not in kinds:
            found.append(kinds)
        text = text[size:]
    return found


PATTERNS = [r"a[a1]*", r"1+(\.1+)?", r"\.", r"-", r" +"]


def test_against_a_lexer(engine: Engine) -> None:
    """Every terminal is possible everywhere, so no context distinguishes two of them."""
    terminals = [regex(p) for p in PATTERNS[:-1]]
    engine.make(repeat(choice(*terminals), 1), ignore=regex(PATTERNS[-1]), longest=True)
    chance = random.Random(5)
    accepted = 0
    for word in chance.sample(WORDS, 1500):
        expected = lexemes(word.decode(), PATTERNS)
        assert engine.accepts(word) == bool(expected), word
        accepted += bool(expected)
    assert accepted > 150


def test_only_terminals_possible_at_a_place_compete(engine: Engine) -> None:
    """`ab` is one lexeme where names are allowed, and two where only `a` is."""
    name, a, b = regex("[a-z]+"), lit("a"), lit("b")
    engine.make(lit("1") + name + lit(";") | lit("2") + a + b, longest=True)
    assert engine.accepts("1ab;") and engine.accepts("2ab")


def test_a_lexeme_may_match_several_terminals(engine: Engine) -> None:
    name, word = regex("[a-z]+"), lit("if")
    engine.make(word + name | name + lit("="), ignore=regex(" +"), longest=True)
    assert engine.accepts("if x") and engine.accepts("if=") and engine.accepts("ifx=")
    assert not engine.alive("ifx y")


@pytest.mark.parametrize("rest", [lit("b"), regex("[a-z]")])
def test_lexemes_that_cannot_be_completed_are_not_begun(engine: Engine, rest: Expr) -> None:
    """Directly after a name, a letter can never be a separate lexeme."""
    engine.make(lit("1") + regex("[a-z]+") + rest | lit("2"), longest=True)
    assert engine.accepts("2") and not engine.alive("1")
    engine.make(lit("1") + regex("[a-z]+") + rest | lit("2"), ignore=regex(" "), longest=True)
    assert engine.accepts("1ab b")
    assert not engine.accepts("1ab")


def test_lists(engine: Engine) -> None:
    engine.make(call(0) + lit(",") + regex("[0-9]+") | regex("[0-9]+"), ignore=regex(r"\s+"), longest=True)
    assert engine.accepts("1, 2,\n33") and not engine.alive("1 2")
