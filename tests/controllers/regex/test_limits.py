"""Patterns beyond a limit are refused, or end with an error, and none of them takes long."""

from __future__ import annotations

import random
import time

import pytest

from aicirt.system.pace import pace
from tests.controllers.regex.engine import Engine, Refused

#: seconds of CPU time of one call on the reference machine; far above what any of these takes, far below what
#: a blow-up would
SOON = 5.0


@pytest.mark.parametrize(
    ("pattern", "column"),
    [
        ("(((a{1000}){1000}){1000})", 12),
        ("a{100000}", 2),
        ("(a{300}){300}", 9),
        ("x(((a?){90}){90}){90}", 18),
        (r"(\w{200}){400}", 10),
        ("(){1000000000}", 3),
        ("(((((((((a*)*){9}){9}){9}){9}){9}){9}){9})", 31),
        ("(a|b{30000}|c{30000})", 0),
    ],
)
def test_counted_repetition_has_a_limit(engine: Engine, pattern: str, column: int) -> None:
    start = time.thread_time()
    with pytest.raises(Refused, match="too large") as caught:
        engine.compile(pattern)
    assert time.thread_time() - start < SOON * pace()
    assert not column or caught.value.offset == column - 1


def test_repetitions_near_the_limit_work(engine: Engine) -> None:
    engine.compile("(?s:.{0,20000})")
    assert engine.accepts("é" * 20_000)
    assert not engine.alive("é" * 20_001)
    engine.compile("(?:[a-z]{1,100} ){200}")
    assert engine.accepts("abc " * 200)


def test_nesting_has_a_limit(engine: Engine) -> None:
    for depth in (100, 90):
        engine.compile("(" * depth + "a" + ")*" * depth)
        assert engine.accepts("aaa")
        engine.compile("[" * depth + "a" + "]" * depth)
        assert engine.accepts("a")
    with pytest.raises(Refused, match="column 101: groups are nested deeper than 100"):
        engine.compile("(" * 101 + ")" * 101)
    with pytest.raises(Refused, match="column 101: classes are nested deeper than 100"):
        engine.compile("[" * 101 + "a" + "]" * 101)
    for opening in ("(?until:", "(?not:", "(?i:"):
        engine.compile(opening * 30 + "a" + ")" * 30)
        with pytest.raises(Refused, match="nested deeper"):
            engine.compile(opening * 5000)


def test_pattern_length_has_a_limit(engine: Engine) -> None:
    with pytest.raises(Refused, match="the pattern is longer than 262144 bytes") as caught:
        engine.compile("a|" * 131_073)
    assert caught.value.offset == 262_144


def test_kinds_of_characters_have_a_limit(engine: Engine) -> None:
    engine.compile("".join(chr(0x4E00 + i) for i in range(4000)))
    with pytest.raises(Refused, match="too many kinds of characters"):
        engine.compile("".join(chr(0x4E00 + i) for i in range(4200)))


@pytest.mark.parametrize("group", ["(?until:(?s:.)*a(?s:.){20})", "(?not:(?s:.)*a(?s:.){20})"])
def test_eagerly_built_groups_have_a_limit(engine: Engine, group: str) -> None:
    start = time.thread_time()
    with pytest.raises(Refused, match="column 2: the automaton of this group is too large"):
        engine.compile("x" + group)
    assert time.thread_time() - start < SOON * pace()


def test_anchors_have_a_limit(engine: Engine) -> None:
    start = time.thread_time()
    with pytest.raises(Refused, match="too large"):
        engine.compile(r"(?:a?\b){3000}(?:b?\B){3000}")
    assert time.thread_time() - start < SOON * pace()


@pytest.mark.parametrize(
    "pattern", ["(.|a)*b.{200}", "(?:.*a){8}.{40}", r"(?:\w|\d|a)*\w{100}x{0,50}", "(a*)*(.*)*b"]
)
def test_exponential_automata_are_built_lazily(engine: Engine, pattern: str) -> None:
    """A deterministic automaton of 2^200 states: only those on the way are made."""
    engine.compile(pattern)
    rng = random.Random(0)
    text = "".join(rng.choice("abcé1") for _ in range(3000))
    start = time.thread_time()
    assert engine.alive(text)
    assert time.thread_time() - start < SOON * pace()
    assert engine.bytes() < 8 << 20


def test_states_have_a_limit(engine: Engine) -> None:
    engine.limits(automaton_bytes=200_000)
    engine.compile("(.|a)*b.{200}")
    rng = random.Random(1)
    text = "".join(rng.choice("abc") for _ in range(5000))
    assert not engine.alive(text)
    assert engine.exhausted()
    assert engine.bytes() < 300_000
    # the next mask starts afresh
    before = text[: engine.run(text).index(0) - 1]
    state = engine.state(before)
    assert state
    fresh = engine.compact(state)
    assert fresh
    assert not engine.exhausted()
    assert all(engine.append(fresh, ord(c)) for c in "abc")


@pytest.mark.parametrize("pattern", [r"(?:.|a)*b.{50}", r"\w+(?: \w+)*!", "(?:é|中|a){1,300}"])
def test_dropping_states_changes_nothing(engine: Engine, pattern: str) -> None:
    """Now and then, between characters and inside them, all states but the present one are dropped."""
    rng = random.Random(pattern)
    text = "".join(rng.choice("aébb 中!") for _ in range(300)).encode()
    engine.limits(kept_bytes=1)
    engine.compile(pattern)
    state = engine.state(b"")
    dropped = 0
    for end in range(len(text) + 1):
        wanted = engine.run(text[:end])[-1]
        state = engine.append(state, text[end - 1]) if end else state
        assert (bool(state), engine.accepting(state)) == (wanted != 0, wanted == 3)
        if not state:
            break
        if rng.random() < 0.2:
            state = engine.compact(state)
            dropped += state != 0
            assert engine.num_states() <= 8
    assert dropped or not state


def test_common_patterns_have_small_automata(engine: Engine) -> None:
    """The automata of the patterns that masks are measured with stay below 20 kB, every state made."""
    for pattern, states in [
        ("[a-z]+", 3),
        (r"-?[0-9]+(\.[0-9]+)?", 6),
        (r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"', 9),
        (r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}", 20),
        ("(?until:</tag>)", 8),
    ]:
        engine.compile(pattern)
        assert engine.inexact_states(1000) == 0
        assert engine.num_states() <= states, pattern
        assert engine.bytes() < 20_000, pattern
