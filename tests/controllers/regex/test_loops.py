"""`loop_signature`: every text of the kinds of bytes that it names is allowed; and it names many."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings

from aicirt.vocab.trie import NUM_CLASSES, byte_classes
from lab.oracles.patterns import Pattern, patterns
from tests.controllers.regex.engine import Engine, Refused

CLASSES = bytes(byte_classes())
UTF8 = 1 << 30
UNLIMITED = 0xFFFFFFFF
EVERYTHING = (1 << NUM_CLASSES) - 1 | UTF8
#: multi-byte characters of all lengths and scripts, with the first and last of each length
CHARACTERS = "\x80ÿéß\u0301λЖא\u07ff\u0800नกあ中한\ud7ff\ue000\uffff\U00010000😀\U0010ffff"


def bits(characters: str) -> int:
    """The signature bits of these characters."""
    found = 0
    for character in characters:
        found |= 1 << CLASSES[ord(character)] if ord(character) < 128 else UTF8
    return found


def check(engine: Engine, state: int, signature: int, length: int) -> None:
    """Every text of at most `length` bytes of the signature is allowed, as far as some states show."""
    allowed = [bytes([b]) for b in range(128) if signature >> CLASSES[b] & 1]
    if signature & UTF8:
        allowed += [c.encode() for c in CHARACTERS]
    seen, level, bytes_so_far = {state}, {state}, 0
    while level and bytes_so_far < length and len(seen) < 300:
        bytes_so_far += 1
        following = set()
        for here in level:
            for character in allowed:
                now = here
                for byte in character:
                    now = engine.append(now, byte)
                    assert now, f"{character!r} is not allowed {bytes_so_far} characters after state {state}"
                following.add(now)
        level = following - seen
        seen |= following


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pattern=patterns(with_anchors=True, with_properties=True))
def test_loop_signatures_name_only_allowed_texts(engine: Engine, pattern: Pattern) -> None:
    try:
        engine.compile(pattern.ours)
    except Refused:
        return
    engine.byte_classes(CLASSES)
    rng = random.Random(pattern.ours)
    state = engine.state(b"")
    for _ in range(8):
        signature, length = engine.loop_signature(state), engine.loop_length(state)
        assert signature & ~EVERYTHING == 0
        assert length > 0
        check(engine, state, signature, length)
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
        # a state that only grows: text that is allowed at first is always allowed
        (r"(?s)(?:.|a)*b.{200}", "abba", EVERYTHING),
        (r"(?s).*", "", EVERYTHING),
        (r"\w*", "a", bits("agAG0_")),
        (r".*\n", "", EVERYTHING & ~bits("\n")),
        ("é*", "é", 0),
        ("\\0{3}", "\0", 0),
        # there is no loop inside a character, nor where a match is complete
        (r"(?s).*", b"\xc3", 0),
        ("(?until:a)", "a", 0),
    ],
)
def test_loop_signatures_of_known_patterns(
    engine: Engine, pattern: str, text: str | bytes, signature: int
) -> None:
    engine.compile(pattern)
    state = engine.state(text)
    assert engine.loop_signature(state) == 0, "without classes there is no answer"
    engine.byte_classes(CLASSES)
    assert engine.loop_signature(state) == signature
    assert engine.loop_length(state) == UNLIMITED
    check(engine, state, signature, UNLIMITED)


@pytest.mark.parametrize(
    ("pattern", "text", "signature", "length"),
    [
        ("(?s).{0,200}", "", EVERYTHING, 40),
        ("(?s).{0,200}", "é" * 180, EVERYTHING, 20),
        ('"[^"\n]{3,20}"', '"', EVERYTHING & ~bits('"\n'), 20),
        (r"[0-9]{1,3}\.", "1", bits("0"), 2),
        (r"\w{1,50}", "é", bits("agAG0_"), 40),
        ("(?:[a-z]{2,30} ){2,5}", "ab", bits("ag"), 28),
        (r"(?:[^\\\n]|\\u[0-9a-f]{4}){0,40}", "", EVERYTHING & ~bits("\\\n"), 40),
    ],
)
def test_loops_of_states_that_count(
    engine: Engine, pattern: str, text: str, signature: int, length: int
) -> None:
    engine.compile(pattern)
    engine.byte_classes(CLASSES)
    state = engine.state(text)
    assert engine.loop_signature(state) == signature
    assert engine.loop_length(state) == length
    check(engine, state, signature, length)
