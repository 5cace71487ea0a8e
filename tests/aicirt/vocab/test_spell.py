"""Longest match over token bytes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import Speller


def test_longest_match_wins() -> None:
    spell = Speller([b"a", b"ab", b"abc", b"b", b"c", b"d"])
    assert spell(b"abcdab") == [2, 5, 1]
    assert spell(b"") == []


def test_speller_backtracks_from_a_dead_end() -> None:
    # "ab" first leaves "c", which no token begins with
    spell = Speller([b"ab", b"a", b"bc"])
    assert spell(b"abc") == [1, 2]
    assert spell(b"ababc") == [0, 1, 2]


def test_highest_id_of_equal_tokens_is_used() -> None:
    assert Speller([b"x", b"", b"y", b"x"])(b"xy") == [3, 2]


def test_error_names_the_offset_of_the_byte_without_a_token() -> None:
    with pytest.raises(VocabularyError, match="byte 0x21 at offset 2") as caught:
        Speller([b"a", b"ab", b"b"])(b"ab!a")
    assert caught.value.detail["offset"] == 2


def test_empty_tokens_are_never_used() -> None:
    with pytest.raises(VocabularyError):
        Speller([b"", b""])(b"a")


@given(st.sets(st.binary(min_size=1, max_size=3), min_size=1, max_size=8), st.data())
def test_every_concatenation_of_tokens_can_be_spelled(pieces: set[bytes], data: st.DataObject) -> None:
    tokens = sorted(pieces)
    text = b"".join(data.draw(st.lists(st.sampled_from(tokens), max_size=12)))
    assert b"".join(tokens[token] for token in Speller(tokens)(text)) == text


def test_speller_agrees_with_exhaustive_search() -> None:
    """Tries all texts of up to 5 letters, with a vocabulary in which many texts lead to dead ends."""
    tokens = [b"aa", b"aab", b"b", b"ba", b"bab"]
    spellable = {b"".join(parts) for count in range(6) for parts in product(tokens, repeat=count)}
    spell = Speller(tokens)
    for size in range(6):
        for letters in product(b"ab", repeat=size):
            text = bytes(letters)
            if text in spellable:
                assert b"".join(tokens[token] for token in spell(text)) == text
            else:
                with pytest.raises(VocabularyError):
                    spell(text)
