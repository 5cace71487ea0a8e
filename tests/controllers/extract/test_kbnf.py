"""Captures of grammars in KBNF: the texts of named rules."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from aicirt.contract.errors import ControllerFailed
from lab.oracles.grammars.expressions import Call, random_grammar, random_terminals
from lab.oracles.grammars.kbnf import kbnf
from lab.oracles.grammars.vocabularies import LETTERS
from lab.oracles.grammars.walk import Controller
from tests.controllers.extract.readings import Readings, TooMany, by_name

Make = Callable[[str], Controller]


def argument(grammar: str, *rules: str) -> str:
    return json.dumps({"kbnf": grammar, "rules": rules})


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
