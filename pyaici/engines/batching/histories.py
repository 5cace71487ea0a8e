"""Computes logits after given token sequences, outside of any request."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from aicirt.contract.errors import AiciError, SpaceError
from pyaici.engines.batching.model import Cached, Feed, LogitsRow, Runner, Slot
from pyaici.engines.batching.sampler import score
from pyaici.engines.record import shared_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.engines.batching.budget import Budget, Claim
    from pyaici.engines.batching.model import PrefixCache
    from pyaici.engines.engine import Counts, TokenScore


#: Sequences that have slots at the same time. The cache allocates slots on demand at full length, and keeps
#: them allocated.
BATCH = 16
#: Most tokens that are scored in a piece: the logits of all of them are in memory at the same time.
_SCORED = 64


class Histories:
    """Evaluates token sequences in batches, starting from the beginnings that the cache holds."""

    def __init__(
        self, runner: Runner, prefixes: PrefixCache, budget: Budget, stats: Counts, max_tokens: int
    ) -> None:
        self._runner = runner
        self._prefixes = prefixes
        self._budget = budget
        self._stats = stats
        self._max_tokens = max_tokens

    def check_sequences(self, sequences: Sequence[Sequence[int]]) -> list[list[int]]:
        """Returns the sequences as lists. Raises ValueError for a sequence that the model cannot take."""
        histories = [list(map(int, sequence)) for sequence in sequences]
        for history in histories:
            if not 0 < len(history) <= self._max_tokens:
                raise ValueError(
                    f"a sequence has {len(history)} tokens; the model takes 1 to {self._max_tokens}"
                )
            for token in history:
                if not 0 <= token < self._runner.num_tokens:
                    raise ValueError(
                        f"a sequence has token {token}; the model's are below {self._runner.num_tokens}"
                    )
        return histories

    def logits(
        self,
        histories: Sequence[list[int]],
        live: Callable[[], Iterable[Cached]],
        most_tokens: Callable[[], int],
    ) -> Generator[None, None, NDArray[np.float32]]:
        """Computes the logits after each sequence: float32 [B, num_logits].

        `live`: slots to start from. `most_tokens`: most tokens of a piece, but a piece may always have one
        token for each sequence. Other work may use the cache between pieces.

        Raises SpaceError, AiciError if the cache was cleared between pieces, and the model's errors. In each
        case this call gives up its slots. After an error of the model, the contents of the cache cannot be
        trusted.
        """
        result = np.empty((len(histories), self._runner.num_logits), np.float32)
        places: dict[tuple[int, ...], list[int]] = {}
        for place, history in enumerate(histories):
            places.setdefault(tuple(history), []).append(place)
        # in sorted order a history follows those that it extends, and neighbours share the most tokens
        distinct = [list(history) for history in sorted(places)]
        first = 0
        while first < len(distinct):
            if first:
                yield
            claim = self._claim(distinct[first : first + BATCH])
            # one slot of the claim is for the shared beginning
            batch = distinct[first : first + max(1, claim.sequences - 1)]
            first += len(batch)
            try:
                rows = yield from self._evaluate(batch, live, most_tokens)
            finally:
                self._budget.release(claim)
            for history, row in zip(batch, self._runner.sampler.to_numpy(rows), strict=True):
                result[places[tuple(history)]] = row
        return result

    def scores(
        self, tokens: list[int], count: int, most_tokens: Callable[[], int], vocab_size: int
    ) -> Generator[None, None, list[TokenScore]]:
        """Computes the log-probability of each token but the first, and the `count` most likely ones there.

        Ids from `vocab_size` on are no tokens. `most_tokens` and errors: see `logits`.
        """
        claim, cleared = self._claim([tokens]), self._prefixes.cleared
        scored = Cached(tokens, Slot())
        found: list[TokenScore] = []
        try:
            scored = Cached(tokens, self._prefixes.start_slot(tokens[:1], ()))
            while len(found) < len(tokens) - 1:
                if found:
                    yield
                if self._prefixes.cleared != cleared:
                    raise _lost()
                here = len(found)
                piece = tokens[here : min(here + max(1, min(most_tokens(), _SCORED)), len(tokens) - 1)]
                self._prefixes.extend(scored.slot, here + len(piece))
                (lines,) = self._runner.run([Feed(scored.slot, piece, every=True)])
                for line, token in zip(
                    self._runner.sampler.to_numpy(lines), tokens[here + 1 :], strict=False
                ):
                    line[vocab_size:] = float("-inf")
                    logprob, top, _ = score(line, token, count)
                    found.append((logprob, top))
            return found
        finally:
            self._budget.release(claim)
            if scored.slot.placed:
                if self._prefixes.cleared != cleared:
                    scored.slot.length = 0  # the contents cannot be trusted: do not keep them
                self._prefixes.end(tokens, scored.slot)

    def _claim(self, batch: list[list[int]]) -> Claim:
        """Claims room for a batch, or for as many of its sequences as fit.

        Raises SpaceError if none fits.
        """
        longest = max(map(len, batch))
        for number in range(len(batch) + 1, 0, -1):
            if (claim := self._budget.claim(number, longest)) is not None:
                return claim
        raise SpaceError(
            f"the key-value cache, which is limited to {self._budget.limit} tokens, has no room now for a "
            f"sequence of {longest} tokens"
        )

    def _evaluate(
        self,
        batch: list[list[int]],
        live: Callable[[], Iterable[Cached]],
        most_tokens: Callable[[], int],
    ) -> Generator[None, None, Sequence[LogitsRow]]:
        working: list[Cached] = []
        cleared = self._prefixes.cleared
        try:
            if self._prefixes.enabled:
                # feed a shared beginning that is not cached through the model only once
                shared = shared_length(batch[0], batch[-1])
                common = batch[0][: min(shared, len(batch[0]) - 1)]
                missing = len(common) - self._prefixes.find(common, live())[1]
                if missing * (len(batch) - 1) > self._runner.pass_cost:
                    self._start_slot(common, working, live)
                    yield from self._feed(working, cleared, most_tokens)
            for history in batch:
                self._start_slot(history, working, live)
            return (yield from self._feed(working[-len(batch) :], cleared, most_tokens))
        finally:
            for cached in working:
                if self._prefixes.cleared != cleared:
                    cached.slot.length = 0  # the contents cannot be trusted: do not keep them
                self._prefixes.end(cached.tokens, cached.slot)

    def _start_slot(
        self, history: list[int], working: list[Cached], live: Callable[[], Iterable[Cached]]
    ) -> None:
        slot = self._prefixes.start_slot(history, (*live(), *working))
        self._stats.reused += slot.length
        working.append(Cached(history, slot))

    def _feed(
        self, working: list[Cached], cleared: int, most_tokens: Callable[[], int]
    ) -> Generator[None, None, Sequence[LogitsRow]]:
        """Feeds the missing tokens, in pieces if they are many. Returns the logits, from the last piece."""
        while True:
            left = [len(cached.tokens) - cached.slot.length for cached in working]
            for cached in working:
                self._prefixes.extend(cached.slot, len(cached.tokens))
            budget, feeds = most_tokens(), []
            if sum(left) <= max(budget, len(left)):
                return self._runner.run(
                    [Feed(cached.slot, cached.tokens[cached.slot.length :]) for cached in working]
                )
            for cached, missing in zip(working, left, strict=True):
                if (count := min(missing - 1, budget)) > 0:
                    start = cached.slot.length
                    feeds.append(Feed(cached.slot, cached.tokens[start : start + count]))
                    budget -= count
            self._runner.run(feeds)
            yield
            if self._prefixes.cleared != cleared:
                raise _lost()


def _lost() -> AiciError:
    return AiciError("the model failed for another request, and the cached keys of this one are lost")


class NextLogits(Protocol):
    """An engine that computes logits beside its requests."""

    def next_logits(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """See `BatchingEngine.next_logits`."""
        ...


class EngineModel:
    """The model of an engine, for use beside the engine's requests and between its steps.

    An engine that keeps ended sequences (``keep=8``) feeds only the new tokens of a history.
    """

    def __init__(self, engine: NextLogits) -> None:
        self._engine = engine

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """See `pyaici.cpc.Model.logprobs`. The softmax is in float64. Raises the errors of `next_logits`."""
        return log_softmax(self._engine.next_logits(histories))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns log-probabilities, float64 [B, N], for logits, float32 [B, N]."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows
