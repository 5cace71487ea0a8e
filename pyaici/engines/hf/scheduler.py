"""Whose turn it is in a step, and how much of long prompts is fed beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicirt.errors import SpaceError
from pyaici.engines.hf.runner import CHUNK_TOKENS, Feed
from pyaici.engines.request import FinishReason

if TYPE_CHECKING:
    from pyaici.engines.hf.pool import SequencePool
    from pyaici.engines.hf.prefixes import PrefixCache
    from pyaici.engines.hf.sequence import Sequence

#: Tokens that a splice may bring into a step without waiting for its turn, as a long prompt does.
SHORT_FEED = 64


class Scheduler:
    """Goes through the live sequences, oldest first."""

    def __init__(self, pool: SequencePool, prefixes: PrefixCache) -> None:
        self._pool = pool
        self._prefixes = prefixes
        #: first sequences of requests with n > 1, to be copied when their turn comes
        self.to_copy: set[int] = set()

    def schedule(self) -> tuple[list[Sequence], list[Feed]]:
        """Sequences whose turn it is, and pieces of long prompts to be fed beside them.

        A step feeds at most `CHUNK_TOKENS` of prompts, so that one long prompt does not stop the others. The
        cache has room for all that is fed.
        """
        self._pool.admit()
        ready: list[Sequence] = []
        filling: list[Feed] = []
        budget = CHUNK_TOKENS
        for seq in list(self._pool.live.values()):
            pending = seq.pending
            short = len(pending) <= SHORT_FEED
            if not seq.slot.placed or not (short or budget):
                continue
            now = len(pending) if short else min(len(pending), budget)
            if not self._make_room(seq, seq.slot.length + now):
                continue
            if now < len(pending):
                filling.append(Feed(seq.slot, pending[:now]))
            else:
                ready.append(seq)
            if not short:
                budget -= now
        for seq in list(ready):
            if seq.id in self.to_copy:
                self.to_copy.remove(seq.id)
                ready += self._pool.clone(seq, seq.request.n - 1)
        return ready, filling

    def _make_room(self, seq: Sequence, tokens: int) -> bool:
        """Whether the cache has room for so many tokens of it; if not it ends, and nothing else has to."""
        try:
            self._prefixes.reserve(0, tokens)
        except SpaceError as error:
            self._pool.finish(seq, FinishReason.ERROR, error)
            return False
        return True
