"""Starts, extends, forks and ends an engine's sequences, with their cache slots and controllers."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, SpaceError, TemplateGoneError, WorkerDiedError
from pyaici.client.step import LATE_SECONDS
from pyaici.engines.batching.model import Cached, Slot, find_second
from pyaici.engines.batching.sampler import describe_next
from pyaici.engines.batching.sequence import Copies, Family, Sequence, most_tokens
from pyaici.engines.connection import OwnerThreads
from pyaici.engines.engine import Counts, FinishReason, GenerationResult, Origin, Request
from pyaici.engines.prompts import begin_token
from pyaici.engines.record import NAN, EventRecorder, Offers, TextTrail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyaici.client.control import Placement
    from pyaici.client.results import Follow, Look
    from pyaici.client.runtime import Runtime
    from pyaici.engines.batching.budget import Budget
    from pyaici.engines.batching.model import PrefixCache, Runner, SecondModel
    from pyaici.tokens import Vocabulary

#: how long a parked sequence keeps its room at least, if another request waits for room; and the part of it
#: for each of its tokens, which may have to be read again. So many that have just begun hold up nobody
KEEP_SECONDS, _PART = 1.0, 0.001
#: most tokens of an owner's live sequences, beyond which none is forked: each takes 40 bytes, also while it
#: waits and has given back its room in the cache
MAX_OWNER_TOKENS = 1 << 22
#: threads of one owner that place controllers again
_THREADS = 4
#: ends by the engine: the controller gets a report of the last tokens before it is freed
_TOLD = (FinishReason.EOS, FinishReason.LENGTH, FinishReason.WORK)


class SequencePool:
    """Owns the sequences, their cache slots and their controllers."""

    def __init__(
        self,
        runner: Runner,
        prefixes: PrefixCache,
        budget: Budget,
        vocabulary: Vocabulary,
        runtime: Runtime | None,
        max_context: int,
        stats: Counts,
        second: Mapping[str, SecondModel],
    ) -> None:
        """`stats`: the engine's, to which the pool adds tokens and forks. `second`: by name."""
        #: see `BatchingEngine.steady`
        self.steady = False
        self._runner = runner
        self._cache = runner.cache
        self.sampler = runner.sampler
        self._prefixes = prefixes
        self._budget = budget
        self._vocabulary = vocabulary
        self._runtime = runtime
        self._max_context = max_context
        self._eos = frozenset(vocabulary.eos)
        self._numbers = itertools.count()
        self._families: dict[int, Family] = {}
        self.recorder = EventRecorder(stats)
        self.offers = Offers(runtime)
        #: by number, oldest first
        self.live: dict[int, Sequence] = {}
        #: those that are not parked: work in each step is only for them
        self.going: dict[int, Sequence] = {}
        #: live sequences without slots, in the order in which they get them
        self._waiting: deque[Sequence] = deque()
        #: live sequences whose controllers wait, by the controllers' numbers, the longest wait first
        self._parked: dict[int, Sequence] = {}
        #: ended sequences whose controllers have not received the report of the last tokens
        self.closing: list[Sequence] = []
        #: sequences whose controllers are being placed again
        self._placing: list[Sequence] = []
        self._threads = OwnerThreads(_THREADS)
        self._stats = stats
        self._second = second

    @property
    def num_eos(self) -> int:
        """The number of tokens of the vocabulary that end a sequence."""
        return len(self._eos)

    # -- beginning ------------------------------------------------------------------------------

    def start_sequence(
        self, request_id: int, request: Request, tokens: list[int], seed: int, control: int | None
    ) -> Sequence:
        """Creates the first sequence of a request. It waits until `admit` gives it a slot."""
        seq = Sequence(
            id=next(self._numbers),
            request_id=request_id,
            request=request,
            seed=seed,
            slot=Slot(),
            trail=TextTrail(self._vocabulary.tokens),
            control=control,
            measured=control is not None and self._require_runtime().wants_logprobs(control),
        )
        self.recorder.start_sequence(seq, tokens)
        self._families[request_id] = Family(
            request, self._budget, most_tokens(request, tokens, self._max_context)
        )
        self._enter(seq)
        self._waiting.append(seq)
        return seq

    def admit(self) -> None:
        """Gives slots to waiting sequences, in order, until the cache has no room for the next one.

        A slot already holds as much of the sequence's beginning as the cache has. If there is no room,
        sequences that have been parked for a while give theirs back.
        """
        while self._waiting:
            seq = self._waiting[0]
            family = self._families[seq.request_id]
            while not family.admit(again=seq.given_back is not None):
                if not self._give_back(time.monotonic()):
                    return
            self._waiting.popleft()
            try:
                seq.slot = self._prefixes.start_slot(seq.tokens, self.cached())
            except SpaceError as error:  # there is less memory than the budget assumes
                self.finish(seq, FinishReason.ERROR, error)
                continue
            family.placed += 1
            if seq.given_back is None:
                seq.started = time.perf_counter()
                self._stats.reused += seq.slot.length
                self.recorder.reuse(seq, seq.slot.length)
            else:
                self._stats.read_again += max(0, seq.given_back - seq.slot.length)
                seq.given_back = None

    @property
    def seconds_to_room(self) -> float:
        """The time until a parked sequence gives its room to one that waits; infinite if none does."""
        ends = [_kept_until(seq) for seq in self._parked.values() if seq.slot.placed] if self._waiting else []
        return max(0.0, min(ends, default=math.inf) - time.monotonic())

    def _give_back(self, now: float) -> bool:
        """Lets a sequence that has been parked for long enough give its room back; the longest wait first.

        It gets room again when it is woken, and finds its text in the cache unless others needed the place.
        """
        placed = (seq for seq in self._parked.values() if seq.slot.placed)
        seq = next((seq for seq in placed if _kept_until(seq) <= now), None)
        if seq is None:
            return False
        seq.given_back, slot, seq.slot = seq.slot.length, seq.slot, Slot()
        seq.logits, seq.twins = None, object()
        self._prefixes.end(seq.tokens, slot, seq.request.owner)
        family = self._families[seq.request_id]
        family.placed -= 1
        family.shrink()
        return True

    def set_aside(self, seq: Sequence) -> None:
        """Leaves a sequence out of steps, whose controller waits for something."""
        seq.parked = time.monotonic()
        del self.going[seq.id]
        assert seq.control is not None
        self._parked[seq.control] = seq

    def resume(self) -> None:
        """Lets sequences take part in steps again that wait no longer, once they have room if it is gone."""
        if self._placing:
            self._take_placed()
        for control in self._runtime.woken() if self._parked and self._runtime is not None else ():
            if (seq := self._parked.pop(control, None)) is not None:
                seq.parked = None
                self.going[seq.id] = seq
                if not seq.slot.placed:
                    self._waiting.append(seq)

    @property
    def idle(self) -> bool:
        """Whether no sequence can take part in a step until one is woken."""
        if self.closing or not (self._parked or self._placing):
            return False
        parked = len(self._parked) + sum(seq.slot.placed for seq in self._placing)
        parked += sum(seq.leader is not None and seq.leader.parked is not None for seq in self.going.values())
        return parked > 0 and len(self.live) == parked + len(self._waiting)

    def parked_requests(self) -> set[int]:
        """Returns the numbers of the requests all of whose sequences are parked."""
        going = {seq.request_id for seq in self.going.values() if seq.leader is None}
        return {seq.request_id for seq in self._parked.values()} - going

    def fork(self, seq: Sequence, controls: list[int | None], by_engine: bool) -> list[Sequence]:
        """Forks a sequence: returns a copy for each controller number.

        If the cache has no room for a copy, that copy has no slot but an error. The caller must end it.
        """
        children = []
        for control in controls:
            slot, error = self._copy_slot(seq)
            child = seq.fork(next(self._numbers), slot, control, error)
            self._enter(child)
            children.append(child)
        self.recorder.fork(seq, children, by_engine=by_engine)
        return children

    def begin_clones(self, seq: Sequence, count: int) -> None:
        """Asks for copies of a sequence for the engine itself; `clones` returns them."""
        copies = seq.copying = Copies()
        for _ in range(count):
            try:
                if seq.control is None:
                    copies.made.append(None)
                else:
                    copies.asked.append(self._require_runtime().begin_clone(seq.control))
            except AiciError as error:
                copies.refused.append(error)

    def clones(self, seq: Sequence, seconds: float = math.inf) -> list[Sequence] | None:
        """Returns the copies that `begin_clones` has asked for, or None if they take longer than `seconds`.

        If the runtime refuses a clone, or the cache has no room for it, that copy ends with the error and is
        left out of the result.
        """
        copies = seq.copying
        assert copies is not None
        end = time.monotonic() + seconds
        while copies.asked:
            try:
                left = None if end == math.inf else max(0.0, end - time.monotonic())
                if not self._require_runtime().cloned(copies.asked[0], left):
                    return None
                copies.made.append(copies.asked.popleft())
                seq.placement = None
            except AiciError as error:
                if self.place_again(seq, error):
                    return None
                copies.asked.popleft()
                copies.refused.append(error)
        seq.copying = None
        children = self.fork(seq, copies.made, by_engine=True) if copies.made else []
        for problem in copies.refused:
            self.finish(self.fork(seq, [None], by_engine=True)[0], FinishReason.ERROR, problem)
        for child in children:
            if child.error is not None:
                self.finish(child, FinishReason.ERROR, child.error)
        return [child for child in children if child.finish_reason is None]

    def _copy_slot(self, seq: Sequence) -> tuple[Slot, SpaceError | None]:
        """Returns a copy of the sequence's slot, or an unallocated slot and the error if there is no room."""
        family, owner = self._families[seq.request_id], seq.request.owner
        try:
            if owner is not None:
                live = sum(len(one.tokens) for one in self.live.values() if one.request.owner == owner)
                if live + len(seq.tokens) > MAX_OWNER_TOKENS:
                    raise SpaceError(
                        f"your live sequences would have {live + len(seq.tokens)} tokens; at most "
                        f"{MAX_OWNER_TOKENS} are kept while they wait: fork less often, or end some"
                    )
            family.widen(self._give_back)
            slot = self._prefixes.fork(seq.slot)
        except SpaceError as error:
            return Slot(), error
        family.placed += 1
        return slot, None

    def _enter(self, seq: Sequence) -> None:
        self.live[seq.id] = self.going[seq.id] = seq
        self._families[seq.request_id].unfinished += 1

    def cached(self, second: SecondModel | None = None) -> list[Cached]:
        """Returns the tokens and slots of live sequences in the cache, or in that of a second model."""
        live = (seq for seq in self.live.values() if seq.slot.length and seq.second is second)
        return [Cached(seq.tokens, seq.slot) for seq in live]

    def prefixes_of(self, seq: Sequence) -> PrefixCache:
        """Returns the cache that has a sequence's slot."""
        return self._prefixes if seq.second is None else seq.second.prefixes

    # -- controllers ------------------------------------------------------------------------------

    def start_controller(
        self,
        request: Request,
        tokens: list[int],
        seed: int,
        where: Placement | None,
        within: float = LATE_SECONDS,
    ) -> tuple[int, Placement]:
        """Starts the controller of a request; returns its number, and where it starts.

        `where`: the result of `place`. Without it, places the controller, and raises TemplateGoneError only
        if that was in vain twice. `within` and other errors: see `Runtime.instantiate`.
        """
        if where is None:
            where = self.place(request)
            with contextlib.suppress(TemplateGoneError):
                return self.start_controller(request, tokens, seed, where, within)
            where = self.place(request, where)
        begin = partial(self._require_runtime().instantiate, **_options(request))
        return begin(prompt=tokens, seed=seed, wait=self.steady, within=within, placement=where), where

    def place(self, request: Request, gone: Placement | None = None) -> Placement:
        """Chooses where a request's controller starts; see `Engine.place`. May be called from any thread."""
        return self._require_runtime().place(gone=gone, **_options(request))

    def place_again(self, seq: Sequence, error: AiciError | None) -> bool:
        """Has a controller placed again, in another thread, if `error` says that it could not start.

        That happens once for a sequence, which is parked meanwhile. Returns False if the error ends it.
        """
        gone = isinstance(error, TemplateGoneError)
        # before its first answer it may have made calls, which must not be made twice
        died = isinstance(error, WorkerDiedError) and not seq.request.calls
        if seq.placement is None or not (gone or died):
            return False
        runtime = self._require_runtime()
        if seq.control is not None:
            runtime.free([seq.control])
        place = partial(self.place, seq.request, seq.placement if gone else None)
        seq.control = seq.copying = seq.report = seq.placement = None
        seq.logits = None if seq.logits is None else self.sampler.keep(seq.logits)
        seq.parked = time.monotonic()
        self.going.pop(seq.id, None)
        seq.placing = self._threads.submit(seq.request.owner or "", place)
        seq.placing.add_done_callback(lambda _: runtime.ring())
        self._placing.append(seq)
        return True

    def _take_placed(self) -> None:
        """Starts the controllers that have been placed again."""
        for seq in self._placing:
            if seq.placing is not None and seq.placing.done() and seq.finish_reason is None:
                self.going[seq.id] = seq
                try:
                    where = seq.placing.result()
                    seq.control, _ = self.start_controller(
                        seq.request, seq.tokens, seq.seed, where, within=0.0
                    )
                    if seq.request.n > 1 and seq.request.beams == 1:
                        self.begin_clones(seq, seq.request.n - 1)
                except AiciError as error:
                    self.finish(seq, FinishReason.ERROR, error)
                seq.parked = seq.placing = None
        live = (seq for seq in self._placing if seq.finish_reason is None)
        self._placing = [seq for seq in live if seq.placing is not None]

    # -- growing ----------------------------------------------------------------------------------

    def append_tokens(
        self,
        seq: Sequence,
        tokens: list[int],
        origin: Origin,
        logprob: float = NAN,
        top: list[tuple[int, float]] | None = None,
        allowed: int | None = None,
    ) -> None:
        """Appends tokens. Ends the sequence at an end token or a limit.

        `logprob`, `top` and `allowed` belong to a single token: see `TokensAppended`.
        """
        seq.suspended = False
        known, best = None if math.isnan(logprob) else [logprob], None if top is None else [top]
        self.recorder.append_tokens(seq, tokens, origin, known, best, allowed)
        for follower in seq.followers:
            self.recorder.append_tokens(follower, tokens, Origin.FORCED)
        if tokens and seq.ends_at(tokens[-1], self._eos):
            self.finish(seq, FinishReason.EOS)
        elif any(self._limit(follower) is not None for follower in seq.followers):
            self.finish(seq, FinishReason.LENGTH)
        elif (reason := seq.limit(self._max_context)) is not None:
            self.finish(seq, reason)

    def splice(self, seq: Sequence, backtrack: int, tokens: list[int]) -> None:
        """Carries out a controller's splice: backtracks, then appends as many tokens as the limits allow.

        A sequence that loses all its tokens gets the vocabulary's begin token, because a model has no logits
        for an empty sequence. The controller's next report has the tokens that were really appended.
        """
        if not backtrack and not tokens and seq.logits is not None:  # it waits: the next step needs them
            seq.logits = self.sampler.keep(seq.logits)
            seq.work += 1
            if (reason := seq.limit(self._max_context)) is not None:
                self.finish(seq, reason)
            return
        self.recorder.backtrack(seq, backtrack)
        for follower in seq.followers:
            self.recorder.backtrack(follower, min(backtrack, len(follower.tokens)))
        tokens = tokens[: seq.room(self._max_context)]
        if not tokens and not seq.tokens:
            tokens = [begin_token(self._vocabulary)]
        seq.work += not tokens
        seq.note(tokens, backtrack)
        self.append_tokens(seq, tokens, Origin.FORCED)

    def _limit(self, follower: Sequence) -> FinishReason | None:
        second = follower.second
        longest = self._max_context if second is None else min(self._max_context, second.runner.max_tokens)
        return follower.limit(longest)

    def attach_follower(self, seq: Sequence, leader: Sequence, answer: Follow) -> None:
        """Has a sequence get the tokens of another one from now on, and take part in sampling them.

        Ends both if the answer names a second model that does not exist or cannot read the sequence.
        """
        seq.leader, seq.weight = leader, answer.weight
        leader.followers.append(seq)
        try:
            if (second := find_second(self._second, answer.model)) is not None:
                second.check_room(seq.tokens)
                self._move(seq, second)
        except AiciError as error:
            self.finish(seq, FinishReason.ERROR, error)

    def _move(self, seq: Sequence, second: SecondModel) -> None:
        """Moves a sequence into the cache of a second model. Raises SpaceError."""
        slot = second.prefixes.start_slot(seq.tokens, self.cached(second))
        self._prefixes.end(seq.tokens, seq.slot, seq.request.owner)
        seq.second, seq.slot = second, slot
        seq.logits, seq.twins = None, object()

    def answer_look(self, seq: Sequence, look: Look) -> None:
        """Has the next report of a sequence answer its controller's look, from the logits that it has."""
        begun = time.thread_time()
        (line,) = self.sampler.to_numpy([seq.last_logits if look.own else seq.mixed_logits])
        seq.note([], top_logprobs=describe_next(look, line, self._vocabulary.num_known))
        if each := self._runner.token_seconds:
            seq.sampling += (time.thread_time() - begun) / each

    def is_end(self, seq: Sequence, token: int) -> FinishReason | None:
        """Returns how the sequence would end if this token were appended; None if it would go on."""
        if seq.ends_at(token, self._eos):
            return FinishReason.EOS
        return FinishReason.LENGTH if seq.room(self._max_context) <= 1 else None

    # -- ending -----------------------------------------------------------------------------------

    def finish(self, seq: Sequence, reason: FinishReason, error: AiciError | None = None) -> None:
        """Ends a sequence and frees its slot.

        If the engine ended it, the controller is freed in the next step, which reports the last tokens.
        Otherwise the controller is freed at once. Does nothing for a sequence that has ended with its leader.
        """
        if seq.finish_reason is not None:
            return
        self.retire(seq, reason, error)
        if seq.control is not None and reason in _TOLD:
            self.closing.append(seq)
        else:
            self.complete([seq])

    def retire(self, seq: Sequence, reason: FinishReason, error: AiciError | None = None) -> None:
        """Removes a sequence from the live ones and frees its slot; `complete` must follow."""
        seq.finish_reason, seq.error = reason, error
        seq.logits = None
        del self.live[seq.id]
        self.going.pop(seq.id, None)
        if (leader := seq.leader) is not None:
            leader.followers.remove(seq)
            # it cannot go on as it was told to
            if leader.finish_reason is None and reason is not FinishReason.STOP:
                self.finish(leader, reason, error)
        for follower in list(seq.followers):
            self.finish(follower, FinishReason.STOP)
        if seq.parked is not None and seq.control is not None:
            del self._parked[seq.control]
        self._leave(seq)

    def _leave(self, seq: Sequence) -> None:
        """Frees the sequence's slot, and the room that its request no longer needs."""
        family = self._families[seq.request_id]
        if seq in self._waiting:
            self._waiting.remove(seq)
        if seq.slot.placed:
            family.placed -= 1
            if seq.finish_reason is FinishReason.CUT:
                self._cache.free(seq.slot)  # a search cuts many sequences, and no request continues them
            else:
                self.prefixes_of(seq).end(seq.tokens, seq.slot, seq.request.owner)
        family.shrink()

    def complete(self, seqs: list[Sequence]) -> None:
        """Completes the end of retired sequences: frees their controllers and keeps their results."""
        self.free_controls([seq.control for seq in seqs if seq.control is not None])
        for seq in seqs:
            self.recorder.end_sequence(seq)
            family = self._families[seq.request_id]
            family.unfinished -= 1
            if not family.unfinished:
                self.offers.withdraw(seq.request_id)

    def free_controls(self, controls: list[int]) -> None:
        """Frees controllers at the runtime."""
        if controls:
            self._require_runtime().free(controls)

    def unfinished(self, request_id: int) -> int:
        """Returns how many sequences of a request are live or still await `complete`."""
        return self._families[request_id].unfinished

    def take_results(self, request_id: int) -> list[GenerationResult]:
        """Returns the results of a request that has ended, and forgets the request.

        Results are ordered by sequence number; those of a beam search best first, at most `n`.
        """
        family = self._families.pop(request_id)
        results = self.recorder.ended.pop_results(request_id)
        if family.request.beams == 1:
            return results
        kept = [result for result in results if result.finish_reason is not FinishReason.CUT]
        kept.sort(key=lambda result: (result.error is None, result.score or 0.0), reverse=True)
        return kept[: family.request.n]

    def _require_runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime


def _options(request: Request) -> dict[str, Any]:
    """Returns the options with which a request's controller is placed and started."""
    names = ("controller", "arg", "capabilities", "owner", "calls")
    return {name: getattr(request, name) for name in names}


def _kept_until(seq: Sequence) -> float:
    """Returns the time until which a parked sequence keeps its room."""
    assert seq.parked is not None
    return seq.parked + KEEP_SECONDS * min(1.0, _PART * seq.slot.length)
