"""Distributions that a model has given, kept for the next sample and the next keystroke."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from pyaici.cpc.tree import CoverTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyaici.cpc.model import Model
    from pyaici.cpc.trie import TokenTrie

#: Some 340 distributions over 49 152 tokens: the histories of a line that is being typed.
MAX_BYTES = 128 << 20
#: Below, quotients of logarithms are beyond what a float64 holds, and the best token has it all.
GREEDY_BELOW = 1e-6


class Session:
    """One model and what it has said; use from one thread.

    Whole distributions are kept, in float64 and in the trie's order, the least recently used going
    first: all that is known of a prefix follows from them, so that another character typed, or taken
    back, or a context that has grown by what was typed, starts from all histories that it shares.
    """

    def __init__(self, model: Model, trie: TokenTrie, max_bytes: int = MAX_BYTES) -> None:
        self.trie = trie
        #: histories that the model was asked about
        self.evaluations = 0
        self._model = model
        self._room = max_bytes
        self._known: OrderedDict[tuple[int, ...], NDArray[np.float64]] = OrderedDict()
        self._last: tuple[tuple[tuple[int, ...], bytes, float], CoverTree] | None = None

    def tree(self, context: Sequence[int], prefix: bytes, temperature: float = 1.0) -> CoverTree:
        """The covers of a prefix after a context, as far as they are known; the last one asked for is kept.

        `temperature` >= 0: what is conditioned is the distribution that a sampler at this temperature
        follows, token by token; below `GREEDY_BELOW` it counts as 0. Raises ValueError for a negative one.
        """
        if not temperature >= 0:
            raise ValueError(f"the temperature is {temperature}; it must not be negative")
        if temperature < GREEDY_BELOW:
            temperature = 0.0
        key = (tuple(context), prefix, temperature)
        if self._last is None or self._last[0] != key:
            self._last = (key, CoverTree(self, *key))
        return self._last[1]

    def known(self, history: tuple[int, ...]) -> NDArray[np.float64] | None:
        """The log-probabilities after a history, in the trie's order, float64 [V]; None if not kept."""
        if (found := self._known.get(history)) is not None:
            self._known.move_to_end(history)
        return found

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """As `known`, of every history; the model is asked, once, about those that are not kept."""
        found = {history: self.known(history) for history in histories}
        missing = [history for history, row in found.items() if row is None]
        if missing:
            self.evaluations += len(missing)
            for history, row in zip(missing, self._model.logprobs(missing), strict=True):
                found[history] = self._keep(history, row[self.trie.order])
        return [row for history in histories if (row := found[history]) is not None]

    def _keep(self, history: tuple[int, ...], row: NDArray[np.float64]) -> NDArray[np.float64]:
        self._known[history] = row
        self._room -= row.nbytes
        while self._room < 0 and self._known:
            self._room += self._known.popitem(last=False)[1].nbytes
        return row
