"""Finds the tokens compatible with the rest of a prefix: its extensions and its beginnings.

The trie is the sorted list of all tokens' bytes. A subtree is a range of this list, found by bisection, and
its probabilities are a slice of the distribution in that order. Slices are summed directly: differences of
running sums would lose prefixes that are less likely than the rounding error of 1.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.tokens import Vocabulary


@dataclass(frozen=True, eq=False, slots=True)
class Compatible:
    """The tokens that can come next before the prefix is covered."""

    #: tokens that begin with the rest of the prefix, as a range of `TokenTrie.order`
    covering: slice
    #: tokens that are a proper beginning of the rest, as indices in `TokenTrie.order`, shortest first, int64
    partial: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of compatible tokens."""
        return int(self.covering.stop - self.covering.start) + len(self.partial)


class TokenTrie:
    """The bytes of a vocabulary's tokens, sorted.

    Special tokens and tokens without bytes are not compatible with any text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        text = [token for token, data in enumerate(tokens) if data and token not in vocabulary.special_names]
        text.sort(key=lambda token: (tokens[token], token))
        rest = sorted(set(range(vocabulary.vocab_size)).difference(text))
        self.vocabulary = vocabulary
        #: all ids: tokens with text sorted by their bytes, then the others, int64 [V]
        self.order: NDArray[np.int64] = np.array(text + rest, np.int64)
        self._bytes = [tokens[token] for token in text]
        self._longest = max(map(len, self._bytes), default=0)

    def tokens_that_start_with(self, text: str | bytes) -> NDArray[np.int64]:
        """Returns the ids of tokens that begin with these bytes (str: its UTF-8), sorted by their bytes."""
        return self.order[self._starting(_bytes(text))]

    def tokens_that_are_prefix_of(self, text: str | bytes) -> NDArray[np.int64]:
        """Returns the ids of tokens with which these bytes begin, or which equal them, shortest first."""
        return self.order[self._along(_bytes(text))]

    def compatible(self, rest: bytes) -> Compatible:
        """Returns the tokens compatible with the rest of a prefix; if it is empty, all tokens with text."""
        return Compatible(self._starting(rest), self._along(rest[:-1]))

    def _starting(self, text: bytes) -> slice:
        first = bisect_left(self._bytes, text)
        # the range ends at the next text without this beginning: increment the last byte below 0xff
        stem = text.rstrip(b"\xff")
        if not stem:
            return slice(first, len(self._bytes))
        return slice(first, bisect_left(self._bytes, stem[:-1] + bytes([stem[-1] + 1]), first))

    def _along(self, text: bytes) -> NDArray[np.int64]:
        """Returns the indices of the tokens that are beginnings of a text, or the whole text."""
        places = []
        place = 0
        for length in range(1, min(len(text), self._longest) + 1):
            part = text[:length]
            place = bisect_left(self._bytes, part, place)
            while place < len(self._bytes) and self._bytes[place] == part:
                places.append(place)
                place += 1
        return np.array(places, np.int64)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
