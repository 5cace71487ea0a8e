"""Sessions: the trees of successive prefixes and contexts, such as those of the keystrokes of a user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyaici.cpc.tree import CoverTree, Distributions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyaici.cpc.tree import Model, TokenTrie

#: About 340 distributions over 49 152 tokens: the histories of a line that is being typed.
MAX_BYTES = 128 << 20
#: Lower temperatures count as 0: the best token then has all the mass, and log-probabilities divided by
#: the temperature may exceed a float64.
GREEDY_BELOW = 1e-6


class Session(Distributions):
    """A model, a cache of its distributions, and the last tree. Use from a single thread.

    All bounds of a prefix follow from the cached distributions. After a character is typed or deleted, or
    after the context grows by the typed text, a new tree therefore reuses all histories that it shares with
    earlier ones.
    """

    def __init__(self, model: Model, trie: TokenTrie, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(model, trie, max_bytes)
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


#: Most characters that are moved: the longer the prefix, the more ways there are to spell it.
MAX_MOVED = 64

#: the last white space that follows another character, and everything after it
_LAST_PIECE = re.compile(r"(?<=\S)\s+\S*\Z")


def heal_context(context: str, prefix: str, max_moved: int = MAX_MOVED) -> tuple[str, str]:
    """Moves the context's last piece into the prefix; returns the new context and prefix (the same text).

    A context that is tokenized by itself ends with tokens that the model would not see in the whole text.
    For example, four spaces before ``print`` become a token of three spaces and the token `` print``.
    Samples are exact only relative to the context's tokens, so these must not bias the continuation.

    The piece begins where white space follows another character: tokenizers of the GPT-2 family begin a
    token there, whatever follows. (Tokenizers that join line breaks to the punctuation before them differ
    in that case.) If the prefix itself begins at such a place, nothing is moved. If the last `max_moved`
    characters contain no such place, nothing is moved, unless they are the whole context.
    """
    if prefix[:1].isspace() and not context[-1:].isspace():
        return context, prefix
    found = _LAST_PIECE.search(context)
    start = found.start() if found is not None else 0
    if len(context) - start > max_moved:
        return context, prefix
    return context[:start], context[start:] + prefix
