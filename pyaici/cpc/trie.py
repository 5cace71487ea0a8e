"""Which tokens go with the rest of a prefix: those that begin with it, and those that it begins with.

The trie is the sorted list of all tokens' bytes: a subtree is a range of it, found by bisection, and
what a model says about a subtree is a slice of its distribution in that order. Slices are summed as they
are: differences of running sums would lose prefixes that are less likely than the rounding of 1.
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
    """The tokens that can come next while something of the prefix is left."""

    #: tokens that begin with all that is left, as a range of `TokenTrie.order`
    covering: slice
    #: tokens that are only a part of what is left, as places in `TokenTrie.order`, shortest first, int64
    partial: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.covering.stop - self.covering.start) + len(self.partial)


class TokenTrie:
    """The bytes of a vocabulary's tokens, sorted. Special tokens and those without bytes go with no text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        text = [token for token, data in enumerate(tokens) if data and token not in vocabulary.special_names]
        text.sort(key=lambda token: (tokens[token], token))
        rest = sorted(set(range(vocabulary.vocab_size)).difference(text))
        self.vocabulary = vocabulary
        #: all ids: those with text sorted by their bytes, then the others, int64 [V]
        self.order: NDArray[np.int64] = np.array(text + rest, np.int64)
        self._bytes = [tokens[token] for token in text]
        self._longest = max(map(len, self._bytes), default=0)

    def tokens_that_start_with(self, text: str | bytes) -> NDArray[np.int64]:
        """Ids of the tokens whose bytes begin with these (str: its UTF-8), sorted by their bytes."""
        return self.order[self._starting(_bytes(text))]

    def tokens_that_are_prefix_of(self, text: str | bytes) -> NDArray[np.int64]:
        """Ids of the tokens that these bytes begin with or are, shortest first."""
        return self.order[self._along(_bytes(text))]

    def compatible(self, rest: bytes) -> Compatible:
        """The tokens that go with the rest of a prefix; of no rest, every token that has text covers it."""
        return Compatible(self._starting(rest), self._along(rest[:-1]))

    def _starting(self, text: bytes) -> slice:
        first = bisect_left(self._bytes, text)
        # the next text that does not begin with this one: the last byte that can grow does
        stem = text.rstrip(b"\xff")
        if not stem:
            return slice(first, len(self._bytes))
        return slice(first, bisect_left(self._bytes, stem[:-1] + bytes([stem[-1] + 1]), first))

    def _along(self, text: bytes) -> NDArray[np.int64]:
        """Places of the tokens on the path of a text, its end included."""
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
