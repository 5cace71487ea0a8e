"""Costs of grammars and texts stay bounded; beyond a limit, the grammar is refused or the text ends."""

from __future__ import annotations

import pytest

from tests.controllers.sdk.cfg.engine import Engine, Expr, Refused, call, choice, lit, regex, repeat, sequence

NUMBER = regex("[0-9]+")


@pytest.mark.parametrize(
    "rules",
    [
        [call(0) + lit(",") + NUMBER | NUMBER],
        [NUMBER + lit(",") + call(0) | NUMBER],
        [NUMBER + repeat(lit(",") + NUMBER, 0)],
        [call(1) + lit(",") + call(0) | call(1), lit("[") + call(0) + lit("]") | NUMBER],
    ],
    ids=["left", "right", "loop", "nested"],
)
def test_a_longer_list_costs_no_more_columns(engine: Engine, rules: list[Expr]) -> None:
    engine.make(*rules)
    assert engine.accepts("1,22,3,4")
    columns = engine.columns()
    assert engine.accepts(",".join(str(i) for i in range(3000)))
    assert engine.columns() <= columns + 2


def test_each_nesting_level_costs_one_or_two_columns(engine: Engine) -> None:
    engine.make(lit("[") + repeat(call(0), 0) + lit("]"))
    assert engine.accepts("[" * 3000 + "]" * 3000)
    assert engine.columns() < 3 * 3000


def test_many_optional_parts(engine: Engine) -> None:
    """2^200 ways to leave some of them out."""
    engine.make(sequence(*(repeat(lit(f"{i};"), 0, 1) for i in range(200))))
    assert engine.accepts("") and engine.accepts("0;7;199;") and not engine.alive("7;0")
    assert engine.columns() < 12


def test_ambiguous_texts(engine: Engine) -> None:
    """The number of readings grows exponentially, but the memory for them does not."""
    engine.make(call(0) + call(0) | lit("a"))
    assert engine.accepts("a" * 300)
    assert engine.bytes() < 4 << 20
    overlapping = regex("[a-z]*")
    engine.make(overlapping + overlapping + overlapping + lit("!"))
    assert engine.accepts("a" * 4000 + "!")
    assert engine.columns() < 12


def test_a_text_with_too_many_readings_fails(engine: Engine) -> None:
    engine.limits(threads=50)
    engine.make(call(0) + call(0) | lit("a"))
    engine.run("a" * 200)
    assert engine.failure() == "the text has too many readings for the engine"


def test_a_grammar_too_large_after_expanding_repetitions_is_refused(engine: Engine) -> None:
    engine.limits(places=10_000)
    engine.make(repeat(lit("a") + NUMBER, 0, 1000))
    with pytest.raises(Refused, match="too large with its repetitions expanded"):
        engine.make(repeat(repeat(lit("a") + NUMBER, 0, 1000), 7, 1000))


def test_nesting_of_groups_is_limited(engine: Engine) -> None:
    engine.limits(nesting=100)
    deep = lit("a")
    for _ in range(300):
        deep = repeat(deep + lit("b"), 0, 1)
    with pytest.raises(Refused, match="nested too deeply"):
        engine.make(deep)


def test_long_sequences_do_not_count_as_nesting(engine: Engine) -> None:
    engine.limits(nesting=100)
    words = [lit(f"<{i}>") for i in range(2000)]
    engine.make(choice(*words) + regex("x") + sequence(*(w + regex("y") for w in words)))
    assert engine.alive("<1999>x<0>y<1>y<2>") and not engine.alive("<2000>")


def test_dropping_columns_does_not_change_results(engine: Engine) -> None:
    """Most of what an ambiguous text makes is dropped between two masks."""
    rules = [call(0) + lit("+") + call(0) | lit("(") + call(0) + lit(")") | NUMBER]
    text = "1+(22+3)+" * 40 + "4"
    engine.make(*rules)
    expected = engine.run(text)
    engine.limits(compact_always=True)
    engine.make(*rules)
    assert engine.run(text) == expected
    assert engine.columns() < 400
