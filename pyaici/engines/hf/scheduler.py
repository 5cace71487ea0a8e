"""Schedules a step: which sequences take part, and how much of long prompts is fed beside them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

from aicirt.contract.errors import SpaceError
from pyaici.engines.engine import FinishReason
from pyaici.engines.hf.runner import CHUNK_TOKENS, Feed

if TYPE_CHECKING:
    from pyaici.engines.hf.pool import SequencePool
    from pyaici.engines.hf.prefixes import PrefixCache
    from pyaici.engines.hf.sequence import Sequence

Owner = TypeVar("Owner", bound=Hashable)
#: Tokens that a splice may bring into a step without waiting for its turn, as a long prompt does.
SHORT_FEED = 64
#: A step takes at most so many times as long as it would take the owner who wants least of it, alone.
_MOST_TIMES_ALONE = 2
#: what is left of a share for one token more: it is a sum of fractions
_NEARLY_ONE = 0.99


class Scheduler:
    """Goes through the live sequences, oldest first.

    All sequences of a step wait for each other. So that an owner with many of them, forks included, or with
    long prompts does not slow down the others, each has a share of the step (`fair_shares`), and within an
    owner's share those come first that have waited longest.
    """

    def __init__(self, pool: SequencePool, prefixes: PrefixCache, pass_cost: int) -> None:
        """`pass_cost`: what a forward pass costs besides its tokens, in tokens."""
        self._pool = pool
        self._prefixes = prefixes
        self._pass_cost = pass_cost
        self._turns = 0
        #: first sequences of requests with n > 1, to be copied when their turn comes
        self.to_copy: set[int] = set()

    def schedule(self) -> tuple[list[Sequence], list[Feed]]:
        """Sequences whose turn it is, and pieces of long prompts to be fed beside them.

        A step feeds at most `CHUNK_TOKENS` of prompts, so that one long prompt does not stop the others. The
        cache has room for all that is fed.
        """
        self._pool.admit()
        owners: dict[str | None, list[Sequence]] = {}
        for seq in self._pool.live.values():
            if seq.slot.placed:
                owners.setdefault(seq.request.owner, []).append(seq)
        wanted = {owner: sum(seq.cost for seq in seqs) for owner, seqs in owners.items()}
        shares = fair_shares(wanted, self._pass_cost)
        ready: list[Sequence] = []
        filling: list[Feed] = []
        budget = CHUNK_TOKENS
        for owner, seqs in owners.items():
            budget = self._share(seqs, shares[owner], budget, ready, filling)
        ready.sort(key=lambda seq: seq.id)
        for seq in list(ready):
            if seq.id in self.to_copy:
                self.to_copy.remove(seq.id)
                ready += self._pool.clone(seq, seq.request.n - 1)
        return ready, filling

    def _share(
        self, seqs: list[Sequence], share: float, budget: int, ready: list[Sequence], filling: list[Feed]
    ) -> int:
        """Gives out the tokens of an owner; what is left of the budget for long prompts."""
        searches: set[int] = set()  # beams of a request go on together, or none of them
        first = True  # which has its turn however much it costs
        for seq in sorted(seqs, key=lambda seq: (seq.turn, seq.id)):
            missing = seq.missing
            short = missing <= SHORT_FEED
            whole = seq.request_id in searches
            left = math.inf if whole else share - seq.sampling
            if not (short or budget) or not (first or left > _NEARLY_ONE):
                continue
            now = missing if short else min(missing, budget)
            if seq.request.beams == 1:
                now = min(now, max(1, round(min(left, now))))
            if not self._make_room(seq, seq.slot.length + now):
                continue
            if now < missing:
                filling.append(Feed(seq.slot, seq.pending[:now]))
            else:
                ready.append(seq)
            if seq.request.beams > 1:
                searches.add(seq.request_id)
            if not short:
                budget -= now
            first = False
            self._turns += 1
            seq.turn = self._turns
            share -= max(1, now) + seq.sampling
        return budget

    def _make_room(self, seq: Sequence, tokens: int) -> bool:
        """Reserves room for so many tokens; if there is none, ends this sequence and returns False."""
        try:
            self._prefixes.reserve(0, tokens)
        except SpaceError as error:
            self._pool.finish(seq, FinishReason.ERROR, error)
            return False
        return True


def fair_shares(wanted: Mapping[Owner, float], pass_cost: float) -> dict[Owner, float]:
    """Returns each owner's share of a step, in tokens: all that it wants, or what leaves others theirs.

    The owner who wants least has the most to lose: the step takes at most `_MOST_TIMES_ALONE` times as long
    as theirs alone would, if there are not too many owners for that. The others get equal parts, or less if
    they want less.
    """
    if not wanted:
        return {}
    least = min(wanted.values())
    left = _MOST_TIMES_ALONE * (pass_cost + least) - pass_cost
    left = max(left, len(wanted) * least) if len(wanted) > 1 else math.inf
    shares: dict[Owner, float] = {}
    for place, owner in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[owner] = min(wanted[owner], left / (len(wanted) - place))
        left -= shares[owner]
    return shares
