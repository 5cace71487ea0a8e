"""Patterns compared with other engines on all short texts; states are dead exactly where no match is left."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.oracles.patterns import ALPHABET, MARK, Pattern, patterns
from tests.controllers.regex.engine import Engine, Refused
from tests.thorough import cases

fuzzing = settings(
    max_examples=cases(20, 75),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Walk:
    """Texts over characters, asked byte by byte, with every step remembered."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps: dict[tuple[int, str], int] = {}
        self.accepts: dict[int, bool] = {}

    def step(self, state: int, character: str) -> int:
        key = (state, character)
        if key not in self.steps:
            for byte in character.encode():
                state = self.engine.append(state, byte)
            self.steps[key] = state
        return self.steps[key]

    def accepting(self, state: int) -> bool:
        if state not in self.accepts:
            self.accepts[state] = self.engine.accepting(state)
        return self.accepts[state]


def check_texts(
    engine: Engine, pattern: Pattern, fullmatch: Callable[[str], object], alphabet: str, length: int
) -> None:
    """All texts up to a length match exactly if another engine matches them."""
    walk = Walk(engine)
    states = {"": engine.state(b"")}
    for size in range(length + 1):
        for letters in itertools.product(alphabet, repeat=size):
            text = "".join(letters)
            if size:
                states[text] = walk.step(states[text[:-1]], text[-1])
            if text == "" and r"\B" in pattern.ours:
                continue  # `\B` matches in an empty text, but not for Python before 3.14
            assert walk.accepting(states[text]) == bool(fullmatch(text)), (pattern, text)


def check(engine: Engine, pattern: Pattern, fullmatch: Callable[[str], object], alphabet: str) -> None:
    try:
        engine.compile(pattern.ours)
    except Refused as refused:
        assert "no text matches" in refused.message
        texts = ("".join(t) for size in range(5) for t in itertools.product(alphabet, repeat=size))
        assert not any(fullmatch(text) for text in texts)
        return
    check_texts(engine, pattern, fullmatch, alphabet, 3)
    # a state is dead exactly if no match can be reached from it; a few random patterns have too many states
    assert engine.inexact_states(30_000) in (0, None)


@fuzzing
@given(pattern=patterns(), letters=st.permutations(ALPHABET))
def test_texts_as_in_the_standard_library(engine: Engine, pattern: Pattern, letters: list[str]) -> None:
    check(engine, pattern, re.compile(pattern.theirs).fullmatch, "".join(letters[:7]))


@fuzzing
@given(pattern=patterns(with_anchors=True), letters=st.permutations(ALPHABET))
def test_anchors_as_in_the_standard_library(engine: Engine, pattern: Pattern, letters: list[str]) -> None:
    check(engine, pattern, re.compile(pattern.theirs).fullmatch, "".join(letters[:6]))


@fuzzing
@given(pattern=patterns(with_properties=True), letters=st.permutations(ALPHABET + MARK))
def test_properties_as_in_the_regex_package(engine: Engine, pattern: Pattern, letters: list[str]) -> None:
    check(engine, pattern, regex.compile(pattern.theirs, regex.V0).fullmatch, "".join(letters[:7]))


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]+",
        r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?",
        r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
        r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}",
        r"\w+(?:[-']\w+)*",
        r"(?i)straße|größe",
        r"\p{Greek}{2,5} \p{Han}{1,3}",
        r"(?m)^\w+$(?:\n^\w+$)*",
        r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$))?){4}".replace(r"(?:\.(?!$))?", r"\.?"),
    ],
)
def test_common_patterns_have_exact_states(engine: Engine, pattern: str) -> None:
    engine.compile(pattern)
    assert engine.inexact_states(30_000) == 0


#: at least one of these makes a whole character of every beginning of one
ENDINGS = [bytes([first, *rest]) for first in (0x80, 0x90, 0xA0) for rest in ([], [0x80], [0x80, 0x80])] + [
    b""
]


@fuzzing
@given(pattern=patterns(with_anchors=True), text=st.binary(max_size=8))
def test_only_well_formed_utf8(engine: Engine, pattern: Pattern, text: bytes) -> None:
    try:
        engine.compile(rf"(?s:.)*(?:{pattern.ours})(?s:.)*")
    except Refused as refused:
        assert "no text matches" in refused.message
        return
    seen = engine.run(text)
    for end, status in enumerate(seen):
        prefix = text[:end]
        assert status == 0 or any(_decodes(prefix + ending) for ending in ENDINGS), (pattern, prefix)
        assert status != 3 or _decodes(prefix), (pattern, prefix)


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
