"""Patterns with bounds of their length, in characters as JSON reads them."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.controllers.sdk.cfg.engine import Engine, Refused, counted, lit

UNLIMITED = 0xFFFFFFFF
#: characters in their spelling
UNITS = ("a", "b", "é", r"\n", r"\u001f", r"\\")
TEXTS = ["".join(units) for size in range(6) for units in itertools.product(UNITS, repeat=size)]
PATTERNS = (
    r'"[^"]*"',
    r'"(?:a|b)*(?:\\n|é)+"',
    r'"(?:a{3}|b{2}é)*"',
    r'"a(?:[^"\\]|\\n|\\u001f)*b"',
    r'"(?:\\\\)*(?:ab)?"',
)


def characters(text: str) -> int:
    return len(re.findall(r"\\u....|\\.|[^\\]", text))


#: those of which a text may have each number of characters from the least one on, wherever it has got to
STRETCHING = (PATTERNS[1], PATTERNS[3], r'"(?:[^"\\]|\\[n\\]|\\u001f)*"')


def check(engine: Engine, pattern: str, least: int, most: int) -> None:
    """Also that every beginning that is allowed can be brought to an end."""
    expected = {t for t in TEXTS if re.fullmatch(pattern, f'"{t}"') and least <= characters(f'"{t}"') <= most}
    try:
        engine.make(counted(least, most, pattern))
    except Refused:
        assert not expected
        return
    for text in TEXTS:
        states = engine.run(f'"{text}"')
        assert (states[-1] == 3) == (text in expected), text
        if states[-2] and len(text) <= 3:
            assert engine.can_end(engine.state(f'"{text}')) is not False


@pytest.mark.parametrize("most", [2, 4, 5, 6])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_short_text(engine: Engine, pattern: str, most: int) -> None:
    check(engine, pattern, 0, most)


@pytest.mark.parametrize(
    ("least", "most"), [(3, 6), (5, 5), (5, 7), (7, 7), (6, 4), (3, UNLIMITED), (6, UNLIMITED)]
)
@pytest.mark.parametrize("pattern", STRETCHING)
def test_a_lower_bound(engine: Engine, pattern: str, least: int, most: int) -> None:
    check(engine, pattern, least, most)


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - set(STRETCHING)))
def test_undecidable_lower_bounds_are_refused(engine: Engine, pattern: str) -> None:
    """In `a{3}` and `b{2}é`, the same number of characters may or may not reach the bound."""
    check(engine, pattern, 2, 5)  # there is no shorter one
    with pytest.raises(Refused):
        engine.make(counted(3, 9, pattern))


def test_long_texts(engine: Engine) -> None:
    engine.make(counted(0, 2002, r'"[a-z]+(?::[a-z]+)*"') + lit("."))
    text = ":".join(["word"] * 399) + ":abcd"
    assert len(text) == 1999
    assert engine.accepts(f'"{text}x"' + ".") and engine.alive(f'"{text}:') is False
    assert not engine.alive(f'"{text}xx')
    engine.make(counted(1000, 1_000_000, r'"[a-z]+(?::[a-z]+)*"') + lit("."))
    assert engine.accepts(f'"{"a" * 998}".') and engine.alive(f'"{"a" * 997}"') is False
    assert engine.accepts(f'"{"a" * 5_000}".')


def test_states_repeat_without_an_upper_bound(engine: Engine) -> None:
    """Longer than the scanner has states; the recognizer drops none within a text."""
    engine.make(counted(5, UNLIMITED, PATTERNS[3]))
    assert engine.accepts('"a' + "x" * 50_000 + 'b"') and engine.failure() is None
    assert engine.state('"axxxxx') == engine.state('"axxxxxxxxx')
    assert not engine.alive('"ab"') and engine.accepts('"axb"')


def test_no_text_is_short_enough(engine: Engine) -> None:
    with pytest.raises(Refused):
        engine.make(counted(0, 9, '"a{8}"'))
    assert engine.make(counted(0, 10, '"a{8}"')).accepts('"aaaaaaaa"')
