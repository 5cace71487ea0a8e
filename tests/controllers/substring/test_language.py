"""Masks of substring, compared with the set of all allowed outputs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import STOP
from lab.oracles.substring import EOS, outputs, parts
from lab.runners.host import Vocab
from tests.controllers.substring.conftest import Substring
from tests.thorough import cases

Make = Callable[[str | bytes], Substring]

SETTINGS = settings(
    max_examples=cases(70, 200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
#: few letters, so that much occurs again; characters of one to four bytes, with bytes in common
TEXTS = st.one_of(
    st.text("ab", min_size=1, max_size=40),
    st.text("abcé中乭😀\n", min_size=1, max_size=24),
    st.text(min_size=1, max_size=12),
)


def check(made: Substring, whole: set[bytes], rng: random.Random) -> None:
    """Masks are exact along random texts, each to its end or for 30 bytes."""
    begun = {text[:size] for text in whole for size in range(len(text) + 1)}
    for _ in range(2):
        with made.start() as guest:
            output = b""
            mid = guest.step().row
            while len(output) < 20:
                tokens = made.vocab.allowed(lambda token, output=output: output + token in begun)  # type: ignore[misc]
                if not tokens:
                    assert mid.verb == STOP and output in whole, (made.argument, output)
                    break
                assert mid.allowed == tokens + [EOS] * (output in whole), (made.argument, output)
                output += made.vocab.tokens[rng.choice([token for token in tokens if token < 256])]
                mid = guest.step([output[-1]], sampled=True).row


@SETTINGS
@given(text=TEXTS)
def test_exactly_the_substrings_are_accepted(substring: Make, text: str) -> None:
    made = substring(text if not text.startswith("{") else json.dumps({"text": text}))
    check(made, parts(text), random.Random(text))


@SETTINGS
@given(
    text=TEXTS,
    end=st.one_of(st.text("ab", min_size=1, max_size=5), st.sampled_from(["\n", "é", "中a", "😀"])),
)
def test_the_first_marker_ends_the_output(substring: Make, text: str, end: str) -> None:
    made = substring(json.dumps({"text": text, "end": end}))
    check(made, outputs(text, end), random.Random(text + end))


def test_the_whole_text_is_a_substring(substring: Make) -> None:
    text = "to be or not to be\n"
    rows = substring(text).masks(text.encode())
    assert [EOS in row for row in rows] == [False] + [True] * len(text)
    assert rows[-1] == [EOS]


def test_characters_are_not_cut(substring: Make) -> None:
    """é is c3 a9, 中 is e4 b8 ad; tokens may hold parts of them."""
    start, lead, whole, *_ = substring("é中").masks("é".encode())
    assert start == [0xC3, 0xE4], "no token that begins within a character"
    assert lead == [0xA9]
    assert whole == [0xE4, EOS]


def test_tokens_may_end_within_a_character(substring: Make, vocab: Vocab) -> None:
    half = vocab.tokens.index(b"a\xc3")
    with substring("aéa").start() as guest:
        assert guest.step().row.allowed == [0x61, 0xC3, vocab.tokens.index(b"\xc3\xa9a"), half]
        assert guest.step([half], sampled=True).row.allowed == [0xA9]


def test_a_marker_may_also_continue_the_text(substring: Make) -> None:
    made = substring(json.dumps({"text": "one, two, three", "end": ", "}))
    rows = made.masks(b"one, ")
    assert ord(",") in rows[3] and EOS not in rows[3]
    assert rows[5] == [EOS], "the marker, though the text has it here too"
    assert made.masks(b"two, ")[-1] == [EOS]


def test_a_marker_at_the_beginning_is_part_of_the_text(substring: Make) -> None:
    """A part has at least one character, so a marker at the beginning of the output is a part."""
    made = substring(json.dumps({"text": "-a-", "end": "-"}))
    assert made.masks(b"--")[-1] == [EOS] and made.masks(b"-a-")[-1] == [EOS]


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '"text"', "\\n", "a\0b", "\r\n"])
def test_any_text_can_be_given_in_json(substring: Make, text: str) -> None:
    assert substring(json.dumps({"text": text})).masks(text.encode())[-1] == [EOS]
    if not text.startswith("{"):
        assert substring(text).masks(text.encode())[-1] == [EOS]
