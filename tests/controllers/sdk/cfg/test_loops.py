"""`loop_signature`: every text of the kinds of bytes that it names is allowed; and it names many."""

from __future__ import annotations

import pytest

from aicirt.vocab.trie import NUM_CLASSES, byte_classes
from tests.controllers.regex.test_loops import UNLIMITED, bits, check
from tests.controllers.sdk.cfg.engine import Engine, Expr, but, call, counted, lit, regex, repeat

EVERYTHING = (1 << NUM_CLASSES) - 1 | bits("é")
STRING = regex(r'"([^"\\\x00-\x1f]|\\.)*"')


@pytest.mark.parametrize(
    ("rules", "before", "kinds"),
    [
        ([STRING + lit("!")], '"abc', "aZ9 é,"),
        ([repeat(STRING, 0)], '"a""b', "aZ9 é,"),
        ([regex("[a-z ]*") + regex("[a-z0-9 ]*") + lit(".")], "abc ", "ab "),
        ([lit("[") + call(0) + lit("]") | STRING], '[["', "a ,é"),
        ([but('"[^"]*"', '"name"', '"names"')], '"namo', "a ,é"),
        ([regex("[^.]*") + lit(".") + regex("[a-z]{0,40}")], "x", "ab é"),
    ],
    ids=["string", "list", "two", "nested", "except", "several"],
)
def test_loop_signatures_name_only_allowed_texts(
    engine: Engine, rules: list[Expr], before: str, kinds: str
) -> None:
    engine.byte_classes(bytes(byte_classes()))
    engine.make(*rules)
    state = engine.state(before)
    signature, length = engine.loop_signature(state), engine.loop_length(state)
    assert bits(kinds) & ~signature == 0 and signature != EVERYTHING
    assert length == UNLIMITED
    check(engine, state, signature, length)


def test_loop_length_of_counted_repetitions(engine: Engine) -> None:
    engine.byte_classes(bytes(byte_classes()))
    engine.make(lit("(") + regex("[a-z]{0,40}") + lit(")"))
    state = engine.state("(abc")
    assert bits("a") & ~engine.loop_signature(state) == 0 and engine.loop_length(state) == 37
    check(engine, state, engine.loop_signature(state), engine.loop_length(state))


def test_no_loop_where_an_excluded_name_may_follow(engine: Engine) -> None:
    engine.byte_classes(bytes(byte_classes()))
    engine.make(but('"[^"]*"', '"name"'))
    assert engine.loop_signature(engine.state('"na')) == 0


def test_loop_length_up_to_the_character_limit(engine: Engine) -> None:
    """Less what the nearest end needs: here two more."""
    engine.byte_classes(bytes(byte_classes()))
    engine.make(counted(0, 50, r'"(?:[^"\\]|\\n)*!"'))
    state = engine.state('"abc')
    assert bits("aé") & ~engine.loop_signature(state) == 0 and 40 <= engine.loop_length(state) <= 44
    check(engine, state, engine.loop_signature(state), engine.loop_length(state))
    near = engine.state('"' + 46 * "a")
    assert engine.loop_length(near) == 1
    check(engine, near, engine.loop_signature(near), 1)
    assert engine.loop_signature(engine.state('"' + 47 * "a")) == 0


def test_loop_length_below_a_lower_bound(engine: Engine) -> None:
    """Below the bound only the end is forbidden, no other byte."""
    engine.byte_classes(bytes(byte_classes()))
    engine.make(counted(30, 90, r'"(?:[^"\\]|\\n)*"'))
    state = engine.state('"abc')
    assert bits("aé") & ~engine.loop_signature(state) == 0 and 80 <= engine.loop_length(state) <= 85
    check(engine, state, engine.loop_signature(state), engine.loop_length(state))
