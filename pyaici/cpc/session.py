"""A cache of a model's distributions, for the next sample and the next keystroke."""

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

#: About 340 distributions over 49 152 tokens: the histories of a line that is being typed.
MAX_BYTES = 128 << 20
#: Lower temperatures count as 0: the best token then has all the mass, and log-probabilities divided by
#: the temperature may exceed a float64.
GREEDY_BELOW = 1e-6


class Session:
    """A model and a cache of its distributions. Use from a single thread.

    The cache keeps whole distributions, as float64 in the trie's order, and evicts the least recently used.
    All bounds of a prefix follow from them. After a character is typed or deleted, or after the context
    grows by the typed text, a new tree therefore reuses all histories that it shares with earlier ones.
    """

    def __init__(self, model: Model, trie: TokenTrie, max_bytes: int = MAX_BYTES) -> None:
        self.trie = trie
        #: number of histories that the model has evaluated
        self.evaluations = 0
        self._model = model
        self._room = max_bytes
        self._known: OrderedDict[tuple[int, ...], NDArray[np.float64]] = OrderedDict()
        self._last: tuple[tuple[tuple[int, ...], bytes, float], CoverTree] | None = None

    def tree(
        self, context: Sequence[int], prefix: bytes, temperature: float = 1.0, *, fresh: bool = False
    ) -> CoverTree:
        """Returns the tree of the covers of a prefix after a context; the session keeps the last tree.

        A `fresh` tree is not kept and has no bounds from the cache, so equal seeds give equal covers. It
        still reads the distributions in the cache instead of evaluating the model.

        The conditioned distribution is the one that a sampler at `temperature` (at least 0) follows,
        token by token. A temperature below `GREEDY_BELOW` counts as 0. Raises ValueError for a negative
        temperature.
        """
        if not temperature >= 0:
            raise ValueError(f"the temperature is {temperature}; it must not be negative")
        if temperature < GREEDY_BELOW:
            temperature = 0.0
        key = (tuple(context), prefix, temperature)
        if fresh:
            return CoverTree(self, *key, fresh=True)
        if self._last is None or self._last[0] != key:
            self._last = (key, CoverTree(self, *key))
        return self._last[1]

    def known(self, history: tuple[int, ...]) -> NDArray[np.float64] | None:
        """Returns the cached log-probabilities after a history (trie order, float64 [V]), or None."""
        if (found := self._known.get(history)) is not None:
            self._known.move_to_end(history)
        return found

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """Returns `known` of every history; evaluates all missing histories in one call of the model."""
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
