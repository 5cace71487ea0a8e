"""Logits after given token sequences, outside of any request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from pyaici.engines.hf.passes import PASS_COST
from pyaici.engines.hf.prefixes import Cached, shared_length
from pyaici.engines.hf.runner import Feed

if TYPE_CHECKING:
    from pyaici.engines.hf.prefixes import PrefixCache
    from pyaici.engines.hf.runner import ModelRunner

#: Sequences that have slots at the same time: slots are made when needed and stay, at full length each.
BATCH = 16


class Histories:
    """Evaluates token sequences in batches, from whatever beginnings of them the cache holds."""

    def __init__(self, runner: ModelRunner, prefixes: PrefixCache) -> None:
        self._runner = runner
        self._prefixes = prefixes
        #: tokens that the cache had, and tokens that were fed, in the last call
        self.reused = self.fed = 0

    def check(self, sequences: Sequence[Sequence[int]]) -> list[list[int]]:
        """The sequences as lists. Raises ValueError for those that the model cannot take."""
        histories = [list(map(int, sequence)) for sequence in sequences]
        for history in histories:
            if not 0 < len(history) <= self._runner.max_tokens:
                raise ValueError(
                    f"a sequence has {len(history)} tokens; the model takes 1 to {self._runner.max_tokens}"
                )
            for token in history:
                if not 0 <= token < self._runner.num_tokens:
                    raise ValueError(
                        f"a sequence has token {token}; the model's are below {self._runner.num_tokens}"
                    )
        return histories

    def logits(self, histories: Sequence[list[int]], live: Iterable[Cached]) -> torch.Tensor:
        """The logits after each sequence: float32 [B, num_logits] on the CPU. `live`: slots to start from.

        Raises what the model raises; no slot of this call is held then, but what the cache holds cannot
        be trusted.
        """
        self.reused = self.fed = 0
        result = torch.empty((len(histories), self._runner.num_logits), dtype=torch.float32)
        places: dict[tuple[int, ...], list[int]] = {}
        for place, history in enumerate(histories):
            places.setdefault(tuple(history), []).append(place)
        others = list(live)
        # in this order, a history follows those that it extends, and neighbours share most
        distinct = sorted(places)
        for first in range(0, len(distinct), BATCH):
            batch = [list(history) for history in distinct[first : first + BATCH]]
            for history, row in zip(batch, self._evaluate(batch, others), strict=True):
                result[places[tuple(history)]] = row.cpu()
        return result

    def _evaluate(self, batch: list[list[int]], others: list[Cached]) -> list[torch.Tensor]:
        working: list[Cached] = []
        try:
            if self._prefixes.enabled:
                # what all share, and nobody has, goes through the model once
                shared = shared_length(batch[0], batch[-1])
                common = batch[0][: min(shared, len(batch[0]) - 1)]
                missing = len(common) - self._prefixes.find(common, others)[1]
                if missing * (len(batch) - 1) > PASS_COST.get(self._runner.device.type, PASS_COST["cuda"]):
                    self._start(common, working, others)
                    self._feed(working)
            for history in batch:
                self._start(history, working, others)
            return self._feed(working[-len(batch) :])
        finally:
            for cached in working:
                self._prefixes.end(cached.tokens, cached.slot)

    def _start(self, history: list[int], working: list[Cached], others: list[Cached]) -> None:
        slot = self._prefixes.start(history, (*others, *working))
        self.reused += slot.length
        working.append(Cached(history, slot))

    def _feed(self, working: list[Cached]) -> list[torch.Tensor]:
        feeds = [Feed(cached.slot, cached.tokens[cached.slot.length :]) for cached in working]
        self.fed += sum(len(feed.tokens) for feed in feeds)
        return self._runner.run(feeds)
