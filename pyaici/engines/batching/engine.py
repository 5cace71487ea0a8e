"""The generation loop around a causal language model of this process.

A step posts the controllers' reports, waits for pre_process, runs the model while mid_process works, waits
for mid_process, and then splices or samples. Each forward pass takes many sequences, each with its own
length and its own controller, if any.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.contract.errors import AiciError, SpaceError
from pyaici.client.masks import count_allowed
from pyaici.client.results import Row
from pyaici.engines.batching.beam import BeamSearch
from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.histories import Histories
from pyaici.engines.batching.model import (
    Feed,
    PrefixCache,
    Runner,
    SecondModel,
    check_names,
    check_same_tokens,
    run_each,
)
from pyaici.engines.batching.pool import SequencePool
from pyaici.engines.batching.sampler import Choice, empty_mask_error
from pyaici.engines.batching.scheduler import Scheduler
from pyaici.engines.batching.sequence import Sequence, most_tokens, width
from pyaici.engines.batching.steering import StepActions
from pyaici.engines.engine import (
    Counts,
    Engine,
    Event,
    FinishReason,
    GenerationResult,
    Origin,
    Request,
    TokenScore,
    run_to_end,
)
from pyaici.engines.prompts import first_tokens
from pyaici.engines.turns import with_turns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence as Seq

    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from pyaici.client.control import Placement
    from pyaici.client.runtime import Runtime
    from pyaici.tokens import Vocabulary


Result = TypeVar("Result")
#: the longest sleep while all sequences wait; whatever they wait for ends it earlier
_SLEEP_SECONDS = 1.0


class BatchingEngine(Engine):
    """Generates text with a model of this process under the control of a runtime's controllers.

    Use it from one thread. If there is a runtime, the engine registers the model's vocabulary with it. The
    caller closes the runtime.
    """

    def __init__(
        self,
        runner: Runner,
        vocabulary: Vocabulary,
        tokenizer: Any,
        runtime: Runtime | None,
        *,
        keep: int,
        budget: Budget,
        keep_tokens: int | None = None,
        second: Mapping[str, tuple[Runner, Vocabulary]] | None = None,
    ) -> None:
        """`tokenizer`: encodes texts and chats (see `encode_prompt`); None if all prompts are token ids.

        `keep`: how many ended sequences stay in the cache; the oldest of the owner with the most go first.
        With one or more, a prompt that shares its beginning with a kept or live sequence is fed only from
        where it differs. `budget`: the room of the cache. Requests wait until there is room for them.
        `keep_tokens`: most tokens of all kept sequences together; None = any number. `second`: further models
        by name, for sequences that follow others. Their caches have room for as many tokens as the first.

        Raises VocabularyError for a second model with other tokens, ValueError for more than `MAX_SECOND`.
        """
        self._runner = runner
        self.tokenizer = tokenizer
        self.runtime = runtime
        self.vocabulary = vocabulary.cut(runner.num_logits)
        if runtime is not None:
            self.vocabulary = with_turns(self.vocabulary, tokenizer)
            runtime.register(self.vocabulary)
        self._vocab_size = self.vocabulary.num_known
        self.cache_tokens = budget.limit
        second = second or {}
        check_names(list(second))
        self._second: dict[str, SecondModel] = {}
        for name, (model, tokens) in second.items():
            check_same_tokens(name, tokens.cut(model.num_logits), self.vocabulary)
            self._second[name] = SecondModel(name, model, PrefixCache(model.cache, keep, keep_tokens))
        self.num_tokens = min(each.num_tokens for each in (runner, *(model for model, _ in second.values())))
        self.max_context = min(runner.max_tokens, budget.limit or runner.max_tokens)
        self._budget = budget
        self._prefixes = PrefixCache(runner.cache, keep, keep_tokens)
        self._stats = StepStats()
        self._pool = SequencePool(
            runner,
            self._prefixes,
            budget,
            self.vocabulary,
            runtime,
            self.max_context,
            self._stats,
            self._second,
        )
        self._histories = Histories(runner, self._prefixes, budget, self._stats, self.max_context)
        self._request_ids = itertools.count()
        self._searches: dict[int, BeamSearch] = {}
        self._scheduler = Scheduler(self._pool, runner)
        #: sequences of the present step with drafts
        self._drafted: list[Sequence] = []

    # -- requests -------------------------------------------------------------------------------

    def place(self, request: Request, gone: Placement | None = None) -> Placement | None:
        """See `Engine.place`."""
        if request.controller is None or self.runtime is None:
            return None
        if not isinstance(request.calls, str) or request.name:
            raise ValueError(
                "a request that is placed ahead names an offer of calls, not functions or a name"
            )
        return self._pool.place(request, gone)

    def add(self, request: Request, placement: Placement | None = None) -> int:
        """Adds a request and returns its number. Generation begins with the next step that has room for it.

        Raises ValueError for a prompt that the model cannot take, and for more sequences than the cache can
        ever have room for. Raises the errors of `Runtime.instantiate`, e.g. ArgumentError if the controller
        refuses its argument. Other requests continue while the controller's `init_prompt` runs; if it fails,
        the request ends with the error in its result.
        """
        tokens = first_tokens(
            self.tokenizer,
            request.prompt,
            self.vocabulary,
            num_tokens=self.num_tokens,
            max_context=self.max_context,
        )
        self._budget.check(width(request), most_tokens(request, tokens, self.max_context))
        seed = secrets.randbits(63) if request.sampling.seed is None else request.sampling.seed & (2**63 - 1)
        control, request_id = None, next(self._request_ids)
        if request.controller is not None:
            if self.runtime is None:
                raise ValueError("a request with a controller needs an engine with a runtime")
            request = self._pool.offers.open_for(request_id, request)
            try:
                control, placement = self._pool.start_controller(request, tokens, seed, placement)
            except BaseException:
                self._pool.offers.withdraw(request_id)
                raise
        seq = self._pool.start_sequence(request_id, request, tokens, seed, control)
        seq.placement = placement
        if request.beams > 1:
            self._searches[request_id] = BeamSearch(request_id, request)
        elif request.n > 1:
            self._pool.begin_clones(seq, request.n - 1)
        return request_id

    @property
    def steady(self) -> bool:
        """Whether the same requests, added at the same times, are computed in the same passes of the model.

        Logits depend a little on what else a pass computes, and so do texts. Steady steps wait for all
        controllers, and prompts are cut in the same way at any speed. Only calls and `sleep` still take their
        time. Needs a runtime with one worker. Default: False.
        """
        return self._pool.steady

    @steady.setter
    def steady(self, steady: bool) -> None:
        self._pool.steady = steady

    def cancel(self, request_id: int) -> None:
        """Ends all live sequences of a request."""
        for seq in [seq for seq in self._pool.live.values() if seq.request_id == request_id]:
            self._pool.finish(seq, FinishReason.CANCELLED)

    @property
    def busy(self) -> bool:
        """Whether a call of `step` has work to do."""
        return bool(self._pool.live or self._pool.closing)

    def cache_use(self) -> dict[str, int]:
        """Returns the tokens that the cache holds, those reserved for requests, and its limit if it has one.

        Sequences that share a beginning count it each. With second models, their caches count as well. May be
        called from any thread.
        """
        live = sum(seq.slot.length for seq in list(self._pool.live.values()))
        kept = sum(cache.kept_tokens for cache in self._caches())
        use = {"held": live + kept, "reserved": self._budget.claimed}
        if self.cache_tokens is None:
            return use
        return {**use, "limit": self.cache_tokens * (1 + len(self._second))}

    def _caches(self) -> Iterator[PrefixCache]:
        yield self._prefixes
        for second in self._second.values():
            yield second.prefixes

    @property
    def stats(self) -> StepStats:
        """Times and counts since the engine was created."""
        return self._stats

    def results(self, request_id: int) -> list[GenerationResult]:
        """Returns the results of a request that has ended. They can be fetched once.

        Raises ValueError while the request is running.
        """
        if (left := self._pool.unfinished(request_id)) > 0:
            raise ValueError(f"request {request_id} still has {left} sequences to finish")
        self._searches.pop(request_id, None)
        return self._pool.take_results(request_id)

    def drain(self) -> list[Event]:
        """Returns the events that no step has returned: of requests added, cancelled or closed since."""
        return self._pool.recorder.drain()

    def close(self) -> None:
        """Ends all sequences and their controllers, and frees the kept prefixes."""
        for seq in list(self._pool.live.values()):
            self._pool.finish(seq, FinishReason.CANCELLED)
        for cache in self._caches():
            cache.clear()
        self._pool.complete(self._pool.closing)
        self._pool.closing = []

    def next_logits(self, sequences: Seq[Seq[int]]) -> NDArray[np.float32]:
        """Returns the logits after each of these token sequences: float32 [B, N].

        Call it between steps; running requests are not affected. Ids that are no tokens have -inf. With
        `keep`, a sequence that extends one evaluated before, or a request's, costs only its new tokens.

        Raises ValueError for an empty sequence, one longer than the model takes, or unknown ids; SpaceError
        if the requests leave no room in the cache. Errors of the model are raised here too, after all
        sequences of requests have ended.
        """
        return run_to_end(self.logits_in_pieces(sequences))

    def logits_in_pieces(self, sequences: Seq[Seq[int]]) -> Generator[None, None, NDArray[np.float32]]:
        """Computes `next_logits` in pieces. The engine may step between pieces.

        A piece has as many tokens as a step feeds of prompts. Close the generator if you do not run it to
        its end. In addition to the errors of `next_logits`, raises AiciError if the model failed for a
        request between two pieces.
        """
        histories = self._histories.check_sequences(sequences)
        logits = yield from self._trusted(
            self._histories.logits(histories, self._pool.cached, self._scheduler.prompt_tokens)
        )
        logits[:, self._vocab_size :] = float("-inf")
        return logits

    def scores_in_pieces(self, tokens: Seq[int], count: int) -> Generator[None, None, list[TokenScore]]:
        """Scores a text as the model reads it, in pieces as `logits_in_pieces` does, with the same errors.

        Returns the log-probability of each token but the first given those before it, at temperature 1 and
        without any controller, and the `count` most likely tokens at each place.
        """
        (history,) = self._histories.check_sequences([tokens])
        return (
            yield from self._trusted(
                self._histories.scores(history, count, self._scheduler.prompt_tokens, self._vocab_size)
            )
        )

    def _trusted(self, work: Generator[None, None, Result]) -> Generator[None, None, Result]:
        """Runs work that feeds the model. An error of the model ends all sequences of requests."""
        try:
            return (yield from work)
        except (AiciError, GeneratorExit):
            raise
        except BaseException as error:  # also an interrupt: the pass may be half done
            self._end_all(error)
            raise

    # -- the step -------------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """Advances the scheduled sequences by one token or one splice. Returns the events, oldest first.

        Errors of the model or of sampling (e.g. if memory is short), and an interrupt while the model runs,
        are raised here, after all sequences have ended.
        """
        stats, begun = self._stats, time.monotonic()
        stats.begin_step()
        self._end_lost()
        self._admit()
        ready, filling = self._scheduler.schedule()
        with stats.phase(Phase.POST):
            actions = StepActions(self._pool, self.runtime, ready, self.num_tokens)
            actions.post()
        with stats.phase(Phase.PRE):
            active = actions.before()
        try:
            with stats.phase(Phase.FORWARD):
                self._forward(active, filling)
        except BaseException as error:  # also an interrupt: the pass may be half done
            actions.abandon()
            self._end_all(error)
            raise
        with stats.phase(Phase.MID):
            answers = actions.collect_answers(active)
        try:
            with stats.phase(Phase.MASK):
                sampling = actions.act(active, answers)
            self._search(active, sampling)
            self._sample([(seq, row) for seq, row in sampling if seq.request.beams == 1])
            self._go_ahead([seq for seq, _ in sampling], begun)
            for seq in self._drafted:  # the cache may drop what lies behind their tokens
                seq.ahead.clear()
        except Exception as error:
            self._end_all(error)
            raise
        return self._pool.recorder.drain()

    def _go_ahead(self, seqs: list[Sequence], begun: float) -> None:
        """Lets sequences go on whose drafts were sampled: the logits after them are known.

        Others wait for their controllers meanwhile: at most as long as the step that began at `begun` took.
        """
        stats, now = self._stats, time.monotonic()
        end = now + (now - begun)
        while seqs := [seq for seq in seqs if seq.finish_reason is None and seq.logits is not None]:
            if time.monotonic() > end and len(self._pool.going) > len(seqs) and not self.steady:
                return
            with stats.phase(Phase.MID):
                actions = StepActions(self._pool, self.runtime, seqs, self.num_tokens, others_wait=True)
                actions.post()
                active = actions.before()
                answers = actions.collect_answers(active)
                sampling = actions.act(active, answers)
            self._sample(sampling)
            seqs = [seq for seq, _ in sampling]

    def _admit(self) -> None:
        """Lets sequences go on that wait no longer, and new ones begin; sleeps while none can."""
        self._pool.resume()
        self._pool.admit()
        if self._pool.idle and self.runtime is not None:
            self.runtime.sleep(min(_SLEEP_SECONDS, self._pool.seconds_to_room))
            self._pool.resume()
            self._pool.admit()

    def parked_requests(self) -> set[int]:
        """See `Engine.parked_requests`."""
        return self._pool.parked_requests()

    def wake(self) -> None:
        """See `Engine.wake`."""
        if self.runtime is not None:
            self.runtime.ring()

    def _end_lost(self) -> None:
        """Ends sequences whose workers have ended, or whose requests keep too much, before the model runs."""
        for request_id, error in self._pool.recorder.ended.too_large().items():
            for seq in [seq for seq in self._pool.live.values() if seq.request_id == request_id]:
                self._pool.finish(seq, FinishReason.ERROR, error)
        lost = self.runtime.lost() if self.runtime is not None else {}
        for seq in [seq for seq in self._pool.live.values() if seq.control in lost] if lost else ():
            assert seq.control is not None
            if not self._pool.place_again(seq, lost[seq.control]):
                self._pool.finish(seq, FinishReason.ERROR, lost[seq.control])

    def _forward(self, active: list[Sequence], filling: list[Feed]) -> None:
        """Computes the logits of every active sequence that has none; twins share one row of the batch."""
        twins: dict[int, list[Sequence]] = {}
        for seq in active:
            if seq.logits is None:
                twins.setdefault(id(seq.twins), []).append(seq)
        groups = []
        for group in twins.values():
            try:
                # the scheduler has made room for the first sequence of a request that is copied, which may
                # have been suspended since
                self._pool.prefixes_of(group[0]).extend(group[0].slot, len(group[0].tokens))
            except SpaceError as error:
                for seq in group:
                    self._pool.finish(seq, FinishReason.ERROR, error)
            else:
                groups.append(group)
        self._drafted = []
        feeds = [self._feed(group) for group in groups]
        feeds += filling
        rows = run_each(self._runner, feeds) if self._second else self._runner.run(feeds)
        for group, feed, logits in zip(groups, feeds, rows, strict=False):
            if feed.every:
                logits = self._take_ahead(group[0], feed, logits)
            for seq in group:
                if seq is not group[0]:
                    self._runner.cache.copy(group[0].slot, seq.slot)
                seq.logits = logits

    def _feed(self, group: list[Sequence]) -> Feed:
        """Returns what the pass feeds for twins: what the cache lacks, and the drafts of a sequence alone."""
        seq, *others = group
        pending, drafts, seq.drafts = seq.pending, seq.drafts, []
        drafts = drafts[: max(0, seq.room(self.max_context) - 1)]
        if not drafts or others or max(drafts) >= self.num_tokens:
            return Feed(seq.slot, pending, second=seq.second)
        try:
            self._prefixes.extend(seq.slot, len(seq.tokens) + len(drafts))
        except SpaceError:  # for the drafts; there is room for the tokens
            return Feed(seq.slot, pending)
        return Feed(seq.slot, pending + drafts, every=True)

    def _take_ahead(self, seq: Sequence, feed: Feed, lines: Any) -> Any:
        """Keeps the logits after the drafts of a feed; returns those after the sequence's last token."""
        count = len(feed.tokens) - (seq.slot.length - len(seq.tokens))
        seq.slot.length = len(seq.tokens)
        self._drafted.append(seq)
        kept = map(self._runner.sampler.keep, lines[count:])
        seq.ahead = deque(zip(feed.tokens[count:], kept, strict=True))
        return lines[count - 1]

    def _end_all(self, cause: BaseException) -> None:
        """Ends the sequences after an unfinished step: the contents of the cache can no longer be trusted.

        An interrupt cancels all sequences. An error ends only those that have slots: the waiting ones have
        nothing in the cache.
        """
        reason, error = FinishReason.CANCELLED, None
        if isinstance(cause, Exception):
            reason, error = FinishReason.ERROR, AiciError(f"the model failed: {cause!r}")
        for seq in list(self._pool.live.values()):
            if seq.slot.placed or error is None:
                self._pool.finish(seq, reason, error)
        for cache in self._caches():
            cache.clear()

    def _search(self, active: list[Sequence], sampling: list[tuple[Sequence, Row | None]]) -> None:
        for request_id in {seq.request_id for seq in active if seq.request.beams > 1}:
            beams = [(seq, row) for seq, row in sampling if seq.request_id == request_id]
            mine = (seq for seq in active if seq.request_id == request_id)
            ended = [seq for seq in mine if seq.finish_reason in _NATURAL_ENDS]
            with self._stats.phase(Phase.SAMPLE):
                self._searches[request_id].advance(self._pool, beams, ended, self._vocab_size)

    def _sample(self, sampling: list[tuple[Sequence, Row | None]]) -> None:
        """Samples a token for each sequence under its row, and appends it."""
        if not sampling:
            return
        stats, sampler = self._stats, self._runner.sampler
        choices = [seq.choice(row, self.vocabulary.eos) for seq, row in sampling]
        with stats.phase(Phase.SAMPLE):
            logits = sampler.stack([seq.mixed_logits for seq, _ in sampling])
        with stats.phase(Phase.MASK):
            plain = sampler.mask(logits, choices, self._vocab_size)
        with stats.phase(Phase.SAMPLE):
            begun = time.thread_time()
            chosen = sampler.choose(logits, plain, choices)
            self._charge([seq for seq, _ in sampling], choices, time.thread_time() - begun)
            for (seq, row), pick in zip(sampling, chosen, strict=True):
                if pick.token < 0:
                    self._pool.finish(seq, FinishReason.ERROR, empty_mask_error())
                    continue
                seq.note(
                    [pick.token],
                    sampled=True,
                    logprob=pick.logprob,
                    allowed_mass=pick.allowed_mass,
                    # the controller gets as many as it asked for; the request may ask for more
                    top_logprobs=pick.top[: row.top_logprobs]
                    if pick.top is not None and row is not None and row.top_logprobs
                    else None,
                )
                allowed = None
                if seq.request.count_allowed and row is not None:
                    allowed = count_allowed(row, self._vocab_size)
                self._pool.append_tokens(seq, [pick.token], Origin.SAMPLED, pick.logprob, pick.top, allowed)

    def _charge(self, seqs: list[Sequence], choices: list[Choice], seconds: float) -> None:
        """Charges the time of sampling to the sequences; the scheduler counts it in their next step."""
        each = self._runner.token_seconds * sum(choice.work for choice in choices)
        for seq, choice in zip(seqs, choices, strict=True):
            seq.sampling += seconds * choice.work / each if each else 0.0


_NATURAL_ENDS = (FinishReason.EOS, FinishReason.LENGTH, FinishReason.WORK)


class Phase(Enum):
    """Phases of a step, in order. Control adds all of them except FORWARD and SAMPLE."""

    #: posting the reports of the last step to the runtime
    POST = "post"
    #: waiting for post_process and pre_process (the critical path)
    PRE = "pre wait"
    #: launching the model; CUDA runs it asynchronously, so its time counts where its result is first read
    FORWARD = "forward"
    #: waiting for the part of mid_process that did not finish during the forward pass
    MID = "mid wait"
    #: splices, and applying rows to logits
    MASK = "mask"
    #: choosing tokens and computing their log-probabilities
    SAMPLE = "sample"


ADDED = (Phase.POST, Phase.PRE, Phase.MID, Phase.MASK)
#: Number of steps whose times are kept individually, for medians.
RECENT_STEPS = 1024


@dataclass(slots=True)
class StepStats(Counts):
    """Counts and times of the steps of an engine."""

    #: sums over all steps
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    #: one entry for each of the last `RECENT_STEPS` steps, the current one included
    recent: deque[dict[Phase, float]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))

    @property
    def last_control_seconds(self) -> float | None:
        """See `Counts.last_control_seconds`."""
        return sum(self.recent[-1][phase] for phase in ADDED) if self.recent else None

    def begin_step(self) -> None:
        """Begins a new step; later times count towards it."""
        self.steps += 1
        self.recent.append(dict.fromkeys(Phase, 0.0))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the `with` body to `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[phase] += seconds
            self.recent[-1][phase] += seconds

    def median_ms(self, phases: Iterable[Phase]) -> float:
        """Returns the median time of these phases together over the recent steps, in milliseconds."""
        phases = tuple(phases)
        sums = [sum(step[phase] for phase in phases) for step in self.recent]
        return 1000 * median(sums) if sums else 0.0

    def mean_ms(self, phases: Iterable[Phase]) -> float:
        """Returns the mean time of these phases together over all steps, in milliseconds."""
        return 1000 * sum(self.seconds[phase] for phase in phases) / max(1, self.steps)

    def table(self) -> Table:
        """Returns a table of the milliseconds per step of each phase and of the phases that control adds."""
        from rich.table import Table  # needs an extra

        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("ms per step")
        for phase in Phase:
            table.add_column(phase.value, justify="right")
        table.add_column("added by control", justify="right")
        groups = [*((phase,) for phase in Phase), ADDED]
        table.add_row("median", *(f"{self.median_ms(group):.3f}" for group in groups))
        table.add_row("mean", *(f"{self.mean_ms(group):.3f}" for group in groups))
        return table
