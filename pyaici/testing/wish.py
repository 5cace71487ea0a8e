"""A pretended model: it wants to write a given text, and makes the best of what it is allowed."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyaici.tokens import Vocabulary

#: what each byte of the text that is left out costs, as a logit: e^-4 is 2 %
_PER_BYTE = 4.0
#: what it costs to say a piece by a shorter token than the longest that fits
_SHORTER = 3.0
#: what never comes in the text is less likely than leaving out all of it, and ending, by this
_ELSEWHERE = 40.0


class Wish:
    """The distribution of a model that wants to write `text` and then to end.

    Most likely is the longest token that comes next. Where it is forbidden the model says what comes
    soonest in the text of all that is allowed, leaving out what lies before; then it ends; then it says
    anything, lower token ids first.
    """

    def __init__(self, text: str | bytes, vocabulary: Vocabulary) -> None:
        self._text = text.encode() if isinstance(text, str) else text
        self._vocabulary = vocabulary
        self._ids: dict[bytes, int] = {}
        lengths: defaultdict[int, set[int]] = defaultdict(set)
        for token, piece in enumerate(vocabulary.tokens):
            if piece and piece not in self._ids:
                self._ids[piece] = token
                lengths[piece[0]].add(len(piece))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def logits(self, said: int) -> NDArray[np.float64]:
        """[vocabulary size], where the first `said` bytes of the text have been written (or left out)."""
        size = self._vocabulary.vocab_size
        left = len(self._text) - said
        logits: NDArray[np.float64] = (
            -_ELSEWHERE - _PER_BYTE * left - 1e-3 * np.arange(size, dtype=np.float64)
        )
        logits[len(self._vocabulary.tokens) :] = -np.inf
        for at in range(len(self._text) - 1, said - 1, -1):  # what comes sooner overwrites what comes later
            for rank, token in enumerate(self._tokens_at(at)):
                logits[token] = max(logits[token], -_PER_BYTE * (at - said) - _SHORTER * rank)
        logits[list(self._vocabulary.eos)] = -_PER_BYTE * left
        return logits

    def after(self, said: int, token: int) -> int:
        """How much of the text is written or left out after this token was sampled."""
        piece = self._vocabulary.decode([token])
        found = self._text.find(piece, said) if piece else -1
        return said if found < 0 else found + len(piece)

    def after_forced(self, said: int, tokens: Sequence[int]) -> list[int]:
        """The same after each of the tokens that were forced: what they begin with may be what was wanted."""
        forced = self._vocabulary.decode(tokens)
        wanted = self._text[said : said + len(forced)]
        pairs = zip(forced, wanted, strict=False)
        common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        lengths = itertools.accumulate(len(self._vocabulary.decode([token])) for token in tokens)
        return [said + min(length, common) for length in lengths]

    def _tokens_at(self, at: int) -> list[int]:
        """The tokens that the text at this place begins with, longest first."""
        found = []
        for length in self._lengths.get(self._text[at], ()):
            token = self._ids.get(self._text[at : at + length])
            if token is not None and at + length <= len(self._text):
                found.append(token)
        return found
