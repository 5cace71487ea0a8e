"""The fake model, which wants to write a given text."""

from __future__ import annotations

import numpy as np
import pytest

from pyaici.testing import Wish, small_vocabulary
from pyaici.tokens import Vocabulary

VOCABULARY = small_vocabulary()
END = VOCABULARY.eos[0]


def order(wish: Wish, position: int, count: int) -> list[bytes]:
    """Returns the bytes of the most likely tokens; those of the end token are empty."""
    return [VOCABULARY.decode([int(t)]) for t in np.argsort(-wish.logits(position), kind="stable")[:count]]


def test_small_vocabulary_has_all_bytes_and_distinct_tokens() -> None:
    assert VOCABULARY.tokens[:256] == [bytes([b]) for b in range(256)]
    assert len(set(VOCABULARY.tokens[:-2])) == len(VOCABULARY.tokens) - 2
    assert VOCABULARY.special_names[END] == "</s>" and VOCABULARY.bos == END - 1
    assert VOCABULARY.tokenizer.kind == "longest"


def test_next_tokens_are_most_likely_then_later_ones_then_the_end() -> None:
    wish = Wish("the dog", VOCABULARY)
    assert order(wish, 0, 7) == [b"the", b"th", b"he", b"t", b"h", b"e", b" dog"]
    assert order(wish, 3, 2) == [b" dog", b" "]
    assert order(wish, 6, 4) == [b"g", b"", b"\x00", b"\x01"]
    assert order(wish, 7, 2) == [b"", b"\x00"]


def test_position_moves_past_a_sampled_token() -> None:
    wish = Wish("abcabd", VOCABULARY)
    assert wish.after(0, ord("a")) == 1
    assert wish.after(1, ord("a")) == 4
    assert wish.after(4, ord("z")) == 4, "a token outside the text does not move the position"
    assert wish.after(2, END) == 2


def test_position_moves_past_forced_tokens_that_match() -> None:
    wish = Wish("name: Ada", VOCABULARY)
    assert wish.after_forced(0, list(b"name:")) == [1, 2, 3, 4, 5]
    assert wish.after_forced(0, list(b"naxe")) == [1, 2, 2, 2]
    assert wish.after_forced(0, list(b"Ada")) == [0, 0, 0]


def test_tokens_with_equal_bytes_and_padding_ids() -> None:
    vocabulary = Vocabulary([b"a", b"a", b"", b"ab"], {2: "</s>"}, eos=(2,), vocab_size=6)
    logits = Wish("ab", vocabulary).logits(0)
    assert np.argsort(-logits, kind="stable")[:3].tolist() == [3, 0, 2]
    assert logits[4:].tolist() == [-np.inf] * 2
    assert np.isfinite(logits[:4]).all()
    with pytest.raises(IndexError):
        Wish("ab", vocabulary).after(0, 6)
