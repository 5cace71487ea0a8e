"""Masks of random grammars, bit by bit, against an Earley recogniser over bytes, and against xgrammar."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aicirt.contract.errors import ControllerFailed
from tests.controllers.gbnf.write import gbnf
from tests.controllers.grammars.expressions import Terminal, literal, random_grammar, random_regex
from tests.controllers.grammars.oracle import Oracle
from tests.controllers.grammars.vocabularies import LETTERS
from tests.controllers.grammars.walk import Controller

Make = Callable[[str], Controller]


def random_terminals(rng: random.Random) -> list[Terminal]:
    texts = [literal(t) for t in rng.sample(["", "a", "b", "ab", "ba", "abc", "cc"], 4)]
    return [*texts, *(Terminal("regex", random_regex(rng, LETTERS)) for _ in range(3))]


@pytest.mark.parametrize("seed", range(6))
def test_random_grammars(small: Make, seed: int) -> None:
    rng, compared, refused = random.Random(seed), 0, 0
    for _ in range(25):
        grammar = random_grammar(rng, "root", random_terminals(rng))
        made, oracle = small(gbnf(grammar)), Oracle(grammar, "root", LETTERS)
        try:
            compared += made.compare(oracle, most=12)
        except ControllerFailed as error:
            assert "root matches no text" in error.message and not oracle.has_text, gbnf(grammar)
            refused += 1
        except AssertionError as error:
            raise AssertionError(gbnf(grammar)) from error
    assert compared > 80 and refused < 12
