"""Large texts and invalid arguments."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from lab.oracles.substring import EOS
from tests.controllers.substring.conftest import Substring

Make = Callable[[str | bytes], Substring]

MOST = 1_000_000


def text_of(kind: str, size: int) -> bytes:
    """Texts whose automata are large in different ways."""
    rng = random.Random(kind)
    if kind == "words":
        words = [bytes(rng.choices(b"etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(2000)]
        return b" ".join(rng.choices(words, k=size // 3))[:size]
    if kind == "letters":
        return bytes(rng.choices(range(32, 127), k=size))
    if kind == "most states and edges":
        return b"a" + b"b" * (size - 2) + b"c"
    return b"x" * size


@pytest.mark.parametrize("kind", ["words", "letters", "most states and edges", "one letter"])
def test_a_million_bytes(substring: Make, kind: str) -> None:
    """Within the memory and the time that every controller has for its start."""
    text = text_of(kind, MOST)
    made = substring(text)
    rng = random.Random(1)
    for at in (0, MOST // 2, MOST - 40, rng.randrange(MOST - 40)):
        rows = made.masks(text[at : at + 40])
        assert [token for token in rows[0] if token < 256] == sorted(set(text))
        assert all(EOS in row for row in rows[1:])
        if kind == "letters":
            assert rows[10] == [text[at + 10], EOS], "ten random letters are in one place"


def test_a_text_beyond_the_limit_is_refused(substring: Make) -> None:
    assert (
        substring(b"a" * (MOST + 1)).refusal()
        == "the text for substrings has 1000001 bytes; at most 1000000 are possible"
    )
    assert "10485760 bytes" in substring(b"a" * (10 << 20)).refusal()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (b"", 'substring needs a text as its argument, or JSON such as {"text": "...", "end": "\\n"}'),
        (b"{}", 'substring needs a text as its argument, or JSON such as {"text": "...", "end": "\\n"}'),
        (b'{"text": ""}', "substring needs a text as its argument, or JSON such as"),
        (b'{"end": "x"}', "substring needs a text as its argument, or JSON such as"),
        (
            b'{"text": "x", "end": ""}',
            '"end" is empty: leave it out, and the output may end after each character',
        ),
        (json.dumps({"text": "x", "end": "y" * 65}).encode(), '"end" has more than 64 bytes'),
        (b'{"text": "x", "min": 3}', 'not "min"'),
        (b'{"text": "x", "text": "y"}', 'each once: not "text"'),
        (b'{"text": 3}', "the argument, which begins with a brace, is not JSON: a string expected at byte 9"),
        (b"{ a brace and no JSON", "the argument, which begins with a brace, is not JSON: "),
        (b"ab\xff", "the argument is not UTF-8 at byte 2"),
        (b"ab\xe4\xb8", "the argument is not UTF-8 at byte 2"),
        (b'{"text": "\xed\xa0\x80"}', "the argument is not UTF-8 at byte 10"),
    ],
)
def test_a_message_says_what_is_wrong(substring: Make, argument: bytes, message: str) -> None:
    assert message in substring(argument).refusal()


def test_the_longest_marker(substring: Make) -> None:
    end = "ab" * 32
    made = substring(json.dumps({"text": "abc", "end": end}))
    assert made.masks(f"a{end}".encode())[-1] == [EOS]
    assert made.masks(f"ab{end}".encode())[-1] == [EOS]
