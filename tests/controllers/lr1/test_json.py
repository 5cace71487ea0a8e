"""The grammar of JSON against Python's parser."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controllers.lr1.conftest import Bundled
from tests.controllers.lr1.recognizer import Recognizer
from tests.thorough import cases

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
#: what texts are damaged with
PIECES = [
    *'[]{},:"\\-+.eE019aftn \t\n\r\x0b\x00\u00e9\u2028',
    "true",
    "null",
    "\\u",
    "\\u12",
    "NaN",
    "'",
    "//",
]


@pytest.fixture(scope="module")
def grammar(bundled: Bundled) -> Recognizer:
    return bundled("json.y")


def is_json(text: str) -> bool:
    def refuse(name: str) -> Any:
        raise ValueError(name)  # NaN and Infinity are not JSON

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def can_be_encoded(text: str) -> bool:
    return not any(0xD800 <= ord(c) < 0xE000 for c in text)


@settings(max_examples=cases(50, 150), deadline=None, derandomize=True)
@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]), st.sampled_from([(",", ":"), (" ,\t", "\r:\n")]))
def test_every_value(
    grammar: Recognizer, value: Any, ascii_only: bool, indent: int | None, marks: Any
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=marks)
    if can_be_encoded(text):
        assert grammar.accepts(text)


@settings(max_examples=cases(130, 400), deadline=None, derandomize=True)
@given(VALUES, st.integers(0, 2**32))
def test_damaged_texts_are_accepted_only_if_they_are_json(grammar: Recognizer, value: Any, seed: int) -> None:
    rng = random.Random(seed)
    text = json.dumps(value, ensure_ascii=bool(seed % 2), indent=(None, 1)[seed % 3 % 2])
    for _ in range(rng.randint(1, 3)):
        begin = rng.randint(0, len(text))
        end = rng.choice([begin, begin + 1, begin + 2])
        text = text[:begin] + rng.choice(["", *PIECES]) + text[end:]
    if can_be_encoded(text):
        assert grammar.accepts(text) == is_json(text), text


def test_random_pieces(grammar: Recognizer) -> None:
    rng, both = random.Random(3), [0, 0]
    for _ in range(8_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 5)))
        expected = is_json(text)
        assert grammar.accepts(text) == expected, text
        both[expected] += 1
    assert min(both) > 120


def test_strings_must_be_utf8(grammar: Recognizer) -> None:
    assert grammar.accepts(b'"\xc3\xa9"')
    for text in (b'"\xc3"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xef\xbb\xbf1"):
        assert not grammar.accepts(text)
