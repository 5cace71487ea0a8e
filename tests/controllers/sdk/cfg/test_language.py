"""A grammar has exactly its texts, and every allowed beginning can be completed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controllers.sdk.cfg.brute import WORDS, Part, grammars, short_texts
from tests.controllers.sdk.cfg.engine import Engine, Expr, Refused, call, lit, regex, repeat
from tests.thorough import cases


@settings(max_examples=cases(100, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(rules=grammars(), forgetful=st.booleans())
def test_random_grammars(engine: Engine, rules: list[Part], forgetful: bool) -> None:
    """Against all short texts, found by brute force; also when everything is forgotten after each byte."""
    expected = short_texts(rules)[0]
    engine.limits(compact_always=forgetful)
    try:
        engine.make(*(rule.expr for rule in rules))
    except Refused as refusal:
        assert str(refusal) == "the grammar matches no text" and not expected
        return
    for word in WORDS:
        states = engine.run(word)
        assert (states[-1] == 3) == (word in expected), word
        if states[-1] and len(word) <= 2 and not forgetful:
            assert engine.can_end(engine.state(word)) is not False, word
    assert engine.failure() is None


A, B, X = lit("a"), lit("b"), lit("x")


@pytest.mark.parametrize(
    ("rules", "texts", "others"),
    [
        ([call(0) + X | A], ["a", "ax", "axxx"], ["", "x", "aa"]),
        ([A + call(0) | X], ["x", "ax", "aaax"], ["", "a", "xa"]),
        ([call(1) | A, call(0) | B | call(0) + X], ["a", "b", "axx", "bx"], ["", "x", "ab"]),
        ([call(0) | A], ["a"], ["", "aa"]),
        ([call(0) + call(0) | A], ["a", "aaaa"], ["", "b"]),
        ([call(1) + call(0) + X | lit(""), B | lit("")], ["", "x", "bx", "bbxx", "bxx"], ["b", "bbx"]),
        ([call(1) + call(1) + call(1), A | lit("")], ["", "a", "aaa"], ["aaaa"]),
        ([repeat(repeat(A | lit(""), 0), 0)], ["", "a", "aaa"], ["b"]),
        ([call(1) + B, call(2) + X | A, call(1) + A | call(0)], ["ab", "aaxb", "abxb"], ["a", "ax", "abb"]),
        ([lit("(") + call(0) + lit(")") | lit("")], ["", "()", "((()))"], ["(", "())", ")("]),
    ],
    ids=["left", "right", "cycle", "itself", "both", "hidden", "empty", "loops", "through", "middle"],
)
def test_left_right_and_nested_recursion(
    engine: Engine, rules: list[Expr], texts: list[str], others: list[str]
) -> None:
    engine.make(*rules)
    assert all(engine.accepts(text) for text in texts)
    assert not any(engine.accepts(text) for text in others)


def test_a_rule_that_never_ends_is_left_out(engine: Engine) -> None:
    engine.make(A + call(1) | B, A + call(1))
    assert engine.accepts("b") and not engine.alive("a")
    with pytest.raises(Refused, match="the grammar matches no text"):
        engine.make(A + call(0))


def test_ignored_text_may_stand_between_terminals(engine: Engine) -> None:
    engine.make(regex("[0-9]+") + lit("+") + regex("[0-9]+"), ignore=regex(" +"), longest=True)
    assert all(map(engine.accepts, ["1+2", " 1 +  2 ", "12 + 34"]))
    assert not engine.alive("1 2") and not engine.accepts("1+")


def test_adjacent_literals_are_joined(engine: Engine) -> None:
    """So a long text is a handful of columns."""
    engine.make(lit("one ") + lit("two ") + (lit("three ") + lit("four")))
    assert engine.accepts("one two three four")
    assert engine.columns() <= 5
