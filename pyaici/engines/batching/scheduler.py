"""Schedules a step: the sequences that take part, and the pieces of long prompts fed beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

from aicirt.contract.errors import SpaceError
from pyaici.engines.batching.model import Feed
from pyaici.engines.engine import FinishReason

if TYPE_CHECKING:
    from pyaici.engines.batching.model import Runner
    from pyaici.engines.batching.pool import SequencePool
    from pyaici.engines.batching.sequence import Sequence

Owner = TypeVar("Owner", bound=Hashable)
#: A sequence that lacks at most this many tokens, e.g. after a splice, is fed without regard to prompts.
SHORT_FEED = 8
#: most tokens of prompts in a step: more would hardly be faster on a processor
PROMPT_TOKENS = 64
#: the longest time for them. It is far above that of small models: their texts, which depend a little on how
#: a prompt is cut, should not depend on the speed of the machine.
PROMPT_SECONDS = 2.0
#: the longest step with tokens of prompts, as a multiple of the step without them
_MAX_TIMES_BESIDE_PROMPTS = 4
#: The longest step, as a multiple of the step that the owner with the least demand would have alone.
_MAX_TIMES_ALONE = 2
#: the longest that a step waits for the copies of a controller, which usually takes less than a millisecond
_COPY_SECONDS = 0.003
#: the rest of a share that still counts as one token, because shares are sums of fractions
_NEARLY_ONE = 0.99


class Scheduler:
    """Chooses the sequences of each step.

    All sequences of a step wait for each other. An owner with many sequences, forks included, or with long
    prompts must not slow down the others. So each owner has a share of the step (`fair_shares`), and within
    a share the sequences that have waited longest come first.
    """

    def __init__(self, pool: SequencePool, runner: Runner) -> None:
        self._pool = pool
        self._runner = runner
        self._short = max(SHORT_FEED, runner.pass_cost)
        self._turns = 0

    def schedule(self) -> tuple[list[Sequence], list[Feed]]:
        """Returns the sequences of the step, and the pieces of prompts to feed beside them.

        Prompts are cut so that they do not stop the other sequences, see `prompt_tokens`. Reserves room in
        the cache for all fed tokens.
        """
        owners: dict[str | None, list[Sequence]] = {}
        for seq in self._pool.going.values():
            if seq.slot.placed:
                owners.setdefault(seq.request.owner, []).append(seq)
        wanted = {owner: sum(seq.cost for seq in seqs) for owner, seqs in owners.items()}
        shares = fair_shares(wanted, self._runner.pass_cost)
        ready: list[Sequence] = []
        filling: list[Feed] = []
        budget = self.prompt_tokens()
        for owner, seqs in owners.items():
            budget = self._share(seqs, shares[owner], budget, ready, filling)
        ready.sort(key=lambda seq: seq.id)
        return self._with_copies(ready), filling

    def _with_copies(self, ready: list[Sequence]) -> list[Sequence]:
        """Adds the copies of sequences that take part for the first time, for requests with `n` above 1.

        Leaves out a sequence whose copies are not there yet: its controller still processes the prompt.
        """
        end = time.monotonic() + _COPY_SECONDS
        found: list[Sequence] = []
        for seq in ready:
            copies = self._pool.clones(seq, end - time.monotonic()) if seq.copying is not None else []
            if copies is not None:
                found += [seq, *copies]
        return found

    def prompt_tokens(self) -> int:
        """Returns the most tokens of prompts that the next step feeds.

        The step must not take many times as long as without the prompts.
        """
        cost, seconds = self._runner.pass_cost, self._runner.token_seconds
        most = max(PROMPT_TOKENS, cost)  # a GPU reads as many in the time of a pass
        while most > 1 and most * seconds > PROMPT_SECONDS and not self._pool.steady:
            most //= 2
        placed = [seq.missing for seq in self._pool.going.values() if seq.slot.placed]
        if others := sum(max(1, missing) for missing in placed if missing <= self._short):
            # the prompts may need a pass of their own
            most = min(most, (_MAX_TIMES_BESIDE_PROMPTS - 1) * (cost + others) - cost)
        return most

    def _share(
        self, seqs: list[Sequence], share: float, budget: int, ready: list[Sequence], filling: list[Feed]
    ) -> int:
        """Spends an owner's share on its sequences. Returns the rest of the budget for long prompts."""
        searches: set[int] = set()  # either all beams of a request take part, or none
        first = True  # the first sequence takes part at any cost
        for seq in sorted(seqs, key=lambda seq: (seq.turn, seq.id)):
            missing = seq.missing
            short = missing <= self._short
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
                filling.append(Feed(seq.slot, seq.pending[:now], second=seq.second))
            else:
                ready.append(seq)
            if seq.request.beams > 1:
                searches.add(seq.request_id)
            if not short:
                budget -= now
            first = False
            self._turns += 1
            seq.turn = self._turns
            if left < math.inf:
                del seq.drafts[max(0, int(left - now + 1 - _NEARLY_ONE)) :]
            share -= max(1, now) + len(seq.drafts) + seq.sampling
            seq.sampling = 0.0
        return budget

    def _make_room(self, seq: Sequence, tokens: int) -> bool:
        """Makes room for `tokens` tokens in the slot. If there is none, ends `seq` and returns False."""
        try:
            self._pool.prefixes_of(seq).extend(seq.slot, tokens)
        except SpaceError as error:
            self._pool.finish(seq, FinishReason.ERROR, error)
            return False
        return True


def fair_shares(wanted: Mapping[Owner, float], pass_cost: float) -> dict[Owner, float]:
    """Returns each owner's share of a step, in tokens: the owner's demand, or less to be fair to the others.

    A step takes at most `_MAX_TIMES_ALONE` times as long as a step of only the owner with the least demand,
    unless there are too many owners for that. That owner gets all of its demand. The others get equal parts
    of the rest, or less if their demand is less.
    """
    if not wanted:
        return {}
    least = min(wanted.values())
    left = _MAX_TIMES_ALONE * (pass_cost + least) - pass_cost
    left = max(left, len(wanted) * least) if len(wanted) > 1 else math.inf
    shares: dict[Owner, float] = {}
    for place, owner in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[owner] = min(wanted[owner], left / (len(wanted) - place))
        left -= shares[owner]
    return shares
