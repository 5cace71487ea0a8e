"""Rules with a parameter: each function and condition, and whole languages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from llguidance import LLMatcher

from lab.exactness.peers import Llguidance
from lab.oracles.grammars.vocabularies import few_tokens
from lab.oracles.grammars.walk import Controller

Make = Callable[[str], Controller]

PERMUTATION = """start: any::0x0
any::_ : ""             %if is_ones([0:3])
    | "a" any::set_bit(0) %if bit_clear(0)
    | "b" any::set_bit(1) %if bit_clear(1)
    | "c" any::set_bit(2) %if bit_clear(2)"""


def texts(made: Controller, letters: str, longest: int) -> list[str]:
    """Returns the complete texts, shortest first."""
    return [
        text
        for n in range(longest + 1)
        for text in map("".join, itertools.product(letters, repeat=n))
        if made.accepts(text)
    ]


def test_a_permutation(grammar: Make) -> None:
    assert texts(grammar(PERMUTATION), "abc", 4) == ["abc", "acb", "bac", "bca", "cab", "cba"]


@pytest.mark.parametrize(
    ("text", "letters", "expected"),
    [
        ('start: s::0\ns::_: "a" s::incr(_) %if lt(_, 2)\n | "."', "a.", [".", "a.", "aa."]),
        ('start: s::0x6\ns::_: "a" s::decr([1:3]) %if gt([1:3], 1)\n | "." %if le(_, 3)', "a.", ["aa."]),
        ('start: s::3\ns::_: "a" s::clear_bit(0) %if bit_set(0)\n | "b" %if eq(_, 2)', "ab", ["ab"]),
        ('start: s::5\ns::_: "a" t::bit_and(4)\nt::_: "." %if eq([2:3], 1)', "a.", ["a."]),
        ('start: s::5\ns::_: t::bit_or(2)\nt::_: "." %if and(is_ones([0:3]), is_zeros([3:64]))', ".", ["."]),
        ('start: s::1\ns::_: "a" %if ne(_, 1)\n | "." %if ge(_, 1)', "a.", ["."]),
        ('start: s::7\ns::_: "a" %if bit_count_lt(_, 3)\n | "." %if bit_count_ge([1:8], 2)', "a.", ["."]),
        ('start: s::7\ns::_: "a" %if not(bit_count_eq(_, 3))\n | "." %if bit_count_ne(_, 1)', "a.", ["."]),
        ('start: s::0\ns::_: "a" %if or(bit_set(63), true)\n | "." %if bit_count_gt(_, 0)', "a.", ["a"]),
        (
            'start: s::0\ns::_: "a" %if bit_count_le(_, 0)\n | "." t::_ "b"\nt::_: "a" %if true()',
            "ab.",
            ["a", ".ab"],
        ),
        (
            'start: s::0\ns::_: ("a" %if eq(_, 0) | "." %if eq(_, 1))+ s::incr([0:1])? %if lt(_, 1)',
            "a",
            ["a"],
        ),
        ('start: s::0xffffffffffffffff\ns::_: "a" %if is_ones(_)\n | s::incr(_)', "a", ["a"]),
    ],
)
def test_functions_and_conditions(grammar: Make, text: str, letters: str, expected: list[str]) -> None:
    assert [t for t in texts(grammar(text), letters, 4) if t in expected] == expected
    assert set(texts(grammar(text), letters, 2)) <= set(expected) | {"aa"}


@pytest.mark.parametrize("seed", range(3))
def test_random_rules_against_llguidance(small: Make, seed: int) -> None:
    """The masks of llguidance, which expands rules while it parses, are the same along random texts."""
    vocab = few_tokens()
    rng, peer, compared = random.Random(seed), Llguidance(vocab), 0
    functions = ["_", "set_bit(0)", "set_bit(2)", "clear_bit(0)", "incr([0:2])", "decr([0:2])", "bit_or(0x4)"]
    conditions = ["bit_clear(0)", "lt([0:2], 3)", "is_ones([0:2])", "bit_count_le(_, 2)", "ne([0:3], 5)"]
    for _ in range(25):
        rules = ["start: r::" + rng.choice(["0", "0x3", "5"])]
        for name in "rs":
            bodies = ['"c"'] + [
                f'"{rng.choice("abc")}" {rng.choice("rs")}::{rng.choice(functions)}'
                + (f" %if {rng.choice(conditions)}" if rng.random() < 0.7 else "")
                for _ in range(3)
            ]
            rules.append(f"{name}::_: " + "\n  | ".join(bodies))
        text = "\n".join(rules)
        theirs = LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + text)
        assert peer.begin(theirs), text
        made = small(text)
        guest = made.start()
        state = made.state(guest, [])
        for _ in range(8):
            mask = peer.mask()
            assert mask is not None
            assert mask - {made.eos} == set(state.tokens), text
            if state.over or not state.tokens:
                break
            token = rng.choice(state.tokens)
            peer.accept(token)
            state, compared = made.state(guest, [token]), compared + 1
    assert compared > 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('start: s\ns::_: "a"', "line 1, column 8: s has a parameter: write s::0, or another value"),
        (
            'start: s::1\ns: "a"',
            "line 1, column 8: s has no parameter: its definition must begin with s::_ :",
        ),
        (
            'start: s::_\ns::_: "a"',
            "line 1, column 8: this rule has no parameter to pass on: give s a number",
        ),
        ('start: "a" %if true', "line 1, column 12: `%if` needs a rule with a parameter, such as start::_"),
        (
            'start: s::odd(1)\ns::_: "a"',
            "line 1, column 11: a parameter is a number, `_` for that of this rule",
        ),
        (
            'start: s::0\ns::_: "a" %if even(1)',
            "line 2, column 15: this condition is unknown; there are true",
        ),
        ('start: s::0\ns::_: "a" %if bit_set(64)', "line 2, column 23: a parameter has the bits 0 to 63"),
        (
            'start: s::0\ns::_: "a" %if eq([3:3], 1)',
            "line 2, column 18: this range has no bits: its end must",
        ),
        ('start: s::18446744073709551616\ns::_: "a"', "line 1, column 11: this number is too large"),
        (
            'start: s::0\ns::_: "a" %if ' + "not(" * 40,
            "line 2, column 147: conditions are nested deeper than 32",
        ),
        ('start: A\nA::_: "a"', "line 2, column 1: a terminal has no parameter: only rules have"),
        (
            'start: A\nA: "a" %if true',
            "line 2, column 8: `%if` cannot be in a terminal: only rules have parameters",
        ),
        (
            'start: s::0\ns::_: "a" s::incr(_) | "b"',
            "line 2, column 1: the parameter of s takes too many values (",
        ),
    ],
)
def test_messages(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)


def test_a_rule_that_nothing_calls_causes_a_warning(grammar: Make) -> None:
    made = grammar('start: s::0 | "b"\ns::_: "a" %if eq(_, 1)\nt::_: "c"')
    assert made.log() == "warning: line 3, column 1: the rule t is not used\n"


def test_a_rule_for_each_set_of_twelve_elements(grammar: Make) -> None:
    letters = "abcdefghijkl"
    body = "\n | ".join(f'"{c}" s::set_bit({i}) %if bit_clear({i})' for i, c in enumerate(letters))
    made = grammar(f'start: s::0\ns::_: "" \n | {body}')
    assert made.accepts("lkjihgfedcba") and not made.accepts("aba")
