"""Byte pair encoding by ranks, as tiktoken and tekken files define it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from aicirt.errors import VocabularyError

#: merged pieces that are remembered; texts repeat their words
_REMEMBERED = 1 << 14


class RankEncoder:
    """Splits text into words, then merges the adjacent pair with the lowest id until none is a token.

    `tokens` holds the bytes of every token, by id; those in `mergeable` are ordered by rank.
    `split` cuts text into words (the pattern of the encoding).
    """

    def __init__(
        self, tokens: Sequence[bytes], mergeable: range, split: Callable[[str], Iterable[str]]
    ) -> None:
        self._ranks = {tokens[token]: token for token in mergeable if tokens[token]}
        self._split = split
        self._words: dict[bytes, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        """The tokens of `text`. Raises VocabularyError if a single byte is no token."""
        tokens: list[int] = []
        for word in self._split(text):
            tokens += self._encode(word.encode())
        return tokens

    def _encode(self, word: bytes) -> list[int]:
        if word in self._ranks:
            return [self._ranks[word]]
        tokens = self._words.get(word)
        if tokens is None:
            tokens = self._merge(word)
            if len(self._words) < _REMEMBERED and len(word) < 64:
                self._words[word] = tokens
        return tokens

    def _merge(self, word: bytes) -> list[int]:
        """Time n log n in the bytes of the word. Of equal pairs the leftmost goes first."""
        ranks = self._ranks
        size = len(word)
        # Piece i covers word[i:end[i]]; the piece before it starts at before[i]. 0 = merged away.
        end = [*range(1, size + 1), 0]
        before = list(range(-1, size))
        pairs = [
            (rank, i, i + 2) for i in range(size - 1) if (rank := ranks.get(word[i : i + 2])) is not None
        ]
        heapify(pairs)
        while pairs:
            _, left, stop = heappop(pairs)
            middle = end[left]
            if not middle or middle >= size or end[middle] != stop:
                continue  # one of the two has been merged with another since
            end[left], end[middle] = stop, 0
            before[stop] = left
            if stop < size and (rank := ranks.get(word[left : end[stop]])) is not None:
                heappush(pairs, (rank, left, end[stop]))
            previous = before[left]
            if previous >= 0 and (rank := ranks.get(word[previous:stop])) is not None:
                heappush(pairs, (rank, previous, stop))
        tokens: list[int] = []
        at = 0
        while at < size:
            token = ranks.get(word[at : end[at]])
            if token is None:
                raise VocabularyError(f"byte 0x{word[at]:02x} is no token of this vocabulary")
            tokens.append(token)
            at = end[at]
        return tokens
