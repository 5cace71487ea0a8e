"""Patterns with a greatest length, in characters as JSON reads them."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.controllers.cfg.engine import Engine, Refused, at_most, lit

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


@pytest.mark.parametrize("most", [2, 4, 5, 6])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_short_text(engine: Engine, pattern: str, most: int) -> None:
    """Also that every beginning that is allowed can be brought to an end."""
    expected = {t for t in TEXTS if re.fullmatch(pattern, f'"{t}"') and characters(f'"{t}"') <= most}
    try:
        engine.make(at_most(most, pattern))
    except Refused:
        assert not expected
        return
    for text in TEXTS:
        states = engine.run(f'"{text}"')
        assert (states[-1] == 3) == (text in expected), text
        if states[-2] and len(text) <= 3:
            assert engine.can_end(engine.state(f'"{text}')) is not False


def test_long_texts(engine: Engine) -> None:
    engine.make(at_most(2002, r'"[a-z]+(?::[a-z]+)*"') + lit("."))
    text = ":".join(["word"] * 399) + ":abcd"
    assert len(text) == 1999
    assert engine.accepts(f'"{text}x"' + ".") and engine.alive(f'"{text}:') is False
    assert not engine.alive(f'"{text}xx')


def test_no_text_is_short_enough(engine: Engine) -> None:
    with pytest.raises(Refused):
        engine.make(at_most(9, '"a{8}"'))
    assert engine.make(at_most(10, '"a{8}"')).accepts('"aaaaaaaa"')
