"""Masks of random grammars, bit by bit, against an Earley recogniser over bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aicirt.contract.errors import ControllerFailed
from tests.controllers.grammars.expressions import (
    Grammar,
    Terminal,
    derive,
    literal,
    nullable,
    random_grammar,
    random_regex,
)
from tests.controllers.grammars.oracle import Oracle
from tests.controllers.grammars.vocabularies import LETTERS
from tests.controllers.grammars.walk import Controller
from tests.controllers.kbnf.write import kbnf

Make = Callable[[str], Controller]


def random_terminals(rng: random.Random) -> list[Terminal]:
    texts = [literal(t) for t in rng.sample(["", "a", "b", "ab", "ba", "abc", "cc"], 4)]
    regexes = [Terminal("regex", random_regex(rng, LETTERS)) for _ in range(2)]
    early = Terminal("early", random_regex(rng, LETTERS))
    without = random_regex(rng, LETTERS)
    while all(nullable(derive(without, letter)) for letter in LETTERS):
        without = random_regex(rng, LETTERS)  # only texts of other letters would be left
    return [*texts, *regexes, early, Terminal("without", without), Terminal("parts", text="abca")]


@pytest.mark.parametrize("seed", range(6))
def test_random_grammars(small: Make, seed: int) -> None:
    rng, compared, refused = random.Random(seed), 0, 0
    for _ in range(15):
        grammar: Grammar = random_grammar(rng, "start", random_terminals(rng))
        made, oracle = small(kbnf(grammar)), Oracle(grammar, "start", LETTERS)
        try:
            compared += made.compare(oracle, most=12, stops=True)
        except ControllerFailed as error:
            assert "start matches no text" in error.message or "only the empty text" in error.message
            assert not any(oracle.allowed(bytes([b]) for b in LETTERS.encode())), kbnf(grammar)
            refused += 1
        except AssertionError as error:
            raise AssertionError(kbnf(grammar)) from error
    assert compared > 48 and refused < 8
