"""`loop_signature`: every text of the kinds of bytes that it names is allowed; and it names many."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings

from aicirt.vocab.signatures import NUM_CLASSES, byte_classes
from tests.controllers.regex.engine import Engine, Refused
from tests.controllers.regex.patterns import Pattern, patterns

CLASSES = bytes(byte_classes())
UTF8 = 1 << 30
EVERYTHING = (1 << NUM_CLASSES) - 1 | UTF8
#: multi-byte characters of all lengths and scripts, with the first and last of each length
CHARACTERS = "\x80ÿéß\u0301λЖא\u07ff\u0800नกあ中한\ud7ff\ue000\uffff\U00010000😀\U0010ffff"


def bits(characters: str) -> int:
    """The signature bits of these characters."""
    found = 0
    for character in characters:
        found |= 1 << CLASSES[ord(character)] if ord(character) < 128 else UTF8
    return found


def check(engine: Engine, state: int, signature: int) -> None:
    """All states that are reached by characters of the signature, as far as 200 of them, lead on by each."""
    allowed = [bytes([b]) for b in range(128) if signature >> CLASSES[b] & 1]
    if signature & UTF8:
        allowed += [c.encode() for c in CHARACTERS]
    seen, work = {state}, [state]
    while work and len(seen) < 200:
        here = work.pop()
        for character in allowed:
            now = here
            for byte in character:
                now = engine.append(now, byte)
                assert now, f"{character!r} is not allowed after state {here}"
            if now not in seen:
                seen.add(now)
                work.append(now)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pattern=patterns(with_anchors=True, with_properties=True))
def test_what_it_names_is_allowed(engine: Engine, pattern: Pattern) -> None:
    try:
        engine.compile(pattern.ours)
    except Refused:
        return
    engine.byte_classes(CLASSES)
    rng = random.Random(pattern.ours)
    state = engine.state(b"")
    for _ in range(8):
        signature = engine.loop_signature(state)
        assert signature & ~EVERYTHING == 0
        check(engine, state, signature)
        following = [s for s in engine.next_states(state) if s]
        if not following:
            break
        state = rng.choice(following)


EMAIL = r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}"
STRING = r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'


@pytest.mark.parametrize(
    ("pattern", "text", "signature"),
    [
        ("[a-z]+", "", bits("ag")),
        ("[a-z]+", "x", bits("ag")),
        (r"-?[0-9]+(\.[0-9]+)?", "1", bits("0")),
        (STRING, '"', EVERYTHING & ~bits('"\\\x00\n\t')),
        (EMAIL, "a", bits("agAG0.-_")),
        (EMAIL, "a@", bits("agAG0-")),
        (EMAIL, "a@b.com", bits("agAG0-")),
        ("(?until:</tag>)", "x", EVERYTHING & ~bits("<")),
        ("(?until:</tag>)", "x</ta", EVERYTHING & ~bits(">")),
        # a state that only grows: what is allowed at first is allowed for ever
        (r"(?s)(?:.|a)*b.{200}", "abba", EVERYTHING),
        (r"(?s).*", "", EVERYTHING),
        (r"\w*", "a", bits("agAG0_")),
        (r".*\n", "", EVERYTHING & ~bits("\n")),
        ("é*", "é", 0),
        ("a{3}", "a", 0),
        # there is no loop inside a character, nor where a match is complete
        (r"(?s).*", b"\xc3", 0),
        ("(?until:a)", "a", 0),
    ],
)
def test_what_it_names(engine: Engine, pattern: str, text: str | bytes, signature: int) -> None:
    engine.compile(pattern)
    state = engine.state(text)
    assert engine.loop_signature(state) == 0, "without classes there is no answer"
    engine.byte_classes(CLASSES)
    assert engine.loop_signature(state) == signature
    check(engine, state, signature)
