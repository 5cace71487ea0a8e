"""The vLLM engine: controllers with every verb on vLLM, like `HfEngine` on Transformers.

vLLM's own engine runs the requests, and the scheduler mixin runs their controllers. This module converts
vLLM's outputs into events and results.
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.errors import AiciError, error_from_wire
from pyaici.client.arguments import argument_bytes
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
from pyaici.engines.record import NAN, EventRecorder, Offers, Record, TextTrail
from pyaici.engines.vllm.distributions import Distributions, PromptScores, most_likely, reports_all
from pyaici.engines.vllm.frontend import events_of, variables_of
from pyaici.engines.vllm.scheduling.driver import engine_vocabulary

if TYPE_CHECKING:
    from pyaici.client.control import Placement
    from pyaici.client.runtime import Runtime
    from pyaici.tokens import Vocabulary


@dataclass(slots=True)
class Family:
    """A vLLM request: a sequence and its forks, by vLLM's choice index."""

    name: str
    number: int
    request: Request
    #: outputs have events with the origin of tokens; if not, all tokens are sampled
    events: bool
    #: number of copies, for a request with `n` above 1, that have not begun
    missing: int
    first: Record
    #: those that have not ended
    sequences: dict[int, Record] = field(default_factory=dict)
    #: log-probabilities of tokens without an event so far, each with the most likely tokens in its place, by
    #: choice index
    logprobs: dict[int, deque[tuple[float, list[tuple[int, float]]]]] = field(default_factory=dict)
    #: number of inherited tokens that the outputs of a fork will still repeat, by choice index
    repeated: dict[int, int] = field(default_factory=dict)
    #: the event about the cache has been added
    told_cached: bool = False
    #: why one of its sequences has failed
    error: AiciError | None = None
    #: events of forks that arrived before the parent's fork event, by choice index
    early: dict[int, list[Any]] = field(default_factory=dict)


class Families:
    """All unfinished families, and results that have not been fetched."""

    def __init__(self, vocabulary: Vocabulary, runtime: Runtime | None) -> None:
        self.offers = Offers(runtime)
        self._vocabulary = vocabulary
        self._families: dict[str, Family] = {}
        self._numbers = itertools.count()
        self.counts = Counts()
        self.recorder = EventRecorder(self.counts)

    # -- requests -------------------------------------------------------------------------------

    def add_family(
        self, name: str, number: int, request: Request, tokens: list[int], *, events: bool
    ) -> None:
        """Adds a family for a request that vLLM knows by `name`."""
        first = self._record(number, request)
        missing = request.n - 1 if events else 0
        self._families[name] = Family(name, number, request, events, missing, first, {0: first})
        self.recorder.start_sequence(first, tokens)

    @property
    def has_unfinished(self) -> bool:
        """Whether any family is unfinished."""
        return bool(self._families)

    @property
    def unfinished(self) -> list[int]:
        """The numbers of unfinished requests."""
        return sorted({family.number for family in self._families.values()})

    @property
    def suspended(self) -> set[int]:
        """The numbers of requests all of whose sequences are suspended."""
        going = {
            family.number
            for family in self._families.values()
            if not all(record.suspended for record in family.sequences.values())
        }
        return {family.number for family in self._families.values()} - going

    def names(self, number: int) -> list[str]:
        """Returns vLLM's names of the unfinished parts of a request."""
        return [name for name, family in self._families.items() if family.number == number]

    def end_request(self, number: int, reason: FinishReason, error: AiciError | None = None) -> None:
        """Ends all sequences of an aborted request."""
        for name in self.names(number):
            for record in self._families[name].sequences.values():
                self._finish(record, reason, error)
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Removes a family whose sequences have ended."""
        number = self._families.pop(name).number
        if not self.names(number):
            self.offers.withdraw(number)

    def results(self, number: int) -> list[GenerationResult]:
        """Returns the results of an ended request and forgets it. Raises ValueError while it is running."""
        if self.names(number):
            raise ValueError(f"request {number} still has sequences to finish")
        return self.recorder.ended.pop_results(number)

    # -- vLLM's outputs -------------------------------------------------------------------------

    def apply_output(self, output: Any) -> None:
        """Applies a `RequestOutput` with one choice."""
        family = self._families.get(output.request_id)
        if family is None:
            return
        (choice,) = output.outputs
        if output.num_cached_tokens and not family.told_cached:
            family.told_cached = True
            self.recorder.reuse(family.first, output.num_cached_tokens)
        events = events_of(output)
        if not family.events and choice.token_ids:
            events = [["sampled", list(choice.token_ids)]]
        if choice.logprobs:
            values = family.logprobs.setdefault(choice.index, deque())
            pairs = zip(choice.token_ids, choice.logprobs, strict=True)
            values.extend(
                (listed[token].logprob, most_likely(listed, family.request.top_logprobs))
                for token, listed in pairs
            )
            while family.repeated.get(choice.index, 0) and values:
                values.popleft()
                family.repeated[choice.index] -= 1
        record = family.sequences.get(choice.index)
        if record is None:
            family.early.setdefault(choice.index, []).extend(events)
        else:
            error: AiciError | None = None
            for word, *what in events:
                if word == "error":
                    error = error_from_wire(what[0])
                else:
                    self._follow(family, choice.index, record, word, what)
            if choice.finish_reason is not None:
                self._end_sequence(family, record, choice, error)
                if record.finish_reason is FinishReason.ERROR:
                    family.error = record.error
                    self._end_missing(family, record)
                for known in (family.sequences, family.logprobs, family.repeated):
                    known.pop(choice.index, None)
        if output.finished:
            lost = family.error or AiciError("vLLM had no request left for this fork")
            for left in family.sequences.values():
                self._finish(left, FinishReason.ERROR, lost)
            self._remove(family.name)

    def _follow(self, family: Family, index: int, record: Record, word: str, what: list[Any]) -> None:
        if word not in ("log", "variables"):
            record.suspended = word == "suspended"
        if word in ("sampled", "forced"):
            self._append(family, index, record, Origin(word), *what)
        elif word == "back":
            self.recorder.backtrack(record, what[0])
        elif word in ("forked", "copied"):
            children = [self._record(family.number, family.request) for _ in what[0]]
            if word == "copied":
                family.missing -= len(children)
            for at, child in zip(what[0], children, strict=True):
                record.copy_to(child)
                family.sequences[at] = child
                family.repeated[at] = child.new_tokens
            self.recorder.fork(record, children, by_engine=word == "copied")
            for at in what[0]:
                for word, *early in family.early.pop(at, ()):
                    self._follow(family, at, family.sequences[at], word, early)
        elif word == "suspended":
            self.recorder.suspend(record)
        elif word == "read_again":
            self.counts.read_again += what[0]
        elif word == "log":
            self.recorder.print(record, what[0])
        elif word == "variables":
            self.recorder.write_variables(record, variables_of(what[0]))

    def _append(
        self,
        family: Family,
        index: int,
        record: Record,
        origin: Origin,
        tokens: list[int],
        allowed: int | None = None,
    ) -> None:
        values = family.logprobs.get(index, deque())
        known = [values.popleft() if values else (NAN, []) for _ in tokens]
        if origin is Origin.FORCED:
            self.recorder.append_tokens(record, tokens, origin)
        else:
            logprobs, top = [logprob for logprob, _ in known], [best for _, best in known]
            self.recorder.append_tokens(record, tokens, origin, logprobs, top, allowed)

    def _end_sequence(self, family: Family, record: Record, choice: Any, error: AiciError | None) -> None:
        reason = FinishReason.EOS
        if choice.finish_reason in ("error", "abort"):
            reason = FinishReason.ERROR
            error = error or AiciError(str(choice.stop_reason or "vLLM failed"))
        elif choice.stop_reason == "work":
            reason = FinishReason.WORK
        elif choice.finish_reason == "length":
            reason = FinishReason.LENGTH
        elif choice.stop_reason == "controller":
            reason = FinishReason.STOP
        self._finish(record, reason, error if reason is FinishReason.ERROR else None)

    def _end_missing(self, family: Family, record: Record) -> None:
        """Ends the copies of a sequence that has failed before they could begin, with the same error."""
        missing, family.missing = family.missing, 0
        for _ in range(missing):
            copy = self._record(family.number, family.request)
            record.copy_to(copy)
            self._finish(copy, FinishReason.ERROR, record.error)

    def _finish(self, record: Record, reason: FinishReason, error: AiciError | None) -> None:
        record.finish_reason, record.error = reason, error
        self.recorder.end_sequence(record)

    def _record(self, number: int, request: Request) -> Record:
        trail = TextTrail(self._vocabulary.tokens)
        return Record(id=next(self._numbers), request_id=number, request=request, trail=trail)


class VllmEngine(Engine):
    """Generates text with vLLM under the control of controllers. Use it from one thread.

    Controllers run beside vLLM's engine: in the runtime that `AICI_SOCKET` named when that engine was
    created, or else in a private one. `Request.controller` is a bundled controller's name, or the id or tag
    of one that has been uploaded to that runtime.
    """

    def __init__(self, llm: Any, runtime: Runtime | None = None, *, max_sequences: int = 16) -> None:
        """`llm`: a vllm.LLM or a vllm.v1.engine.llm_engine.LLMEngine, for the exclusive use of this engine.

        `runtime`: another connection to the aicirt that vLLM's engine uses, for uploads to it.
        `max_sequences`: most sequences of one controller in a request, including forks that have ended. vLLM
        keeps a request ready for each.
        """
        self._engine = getattr(llm, "llm_engine", llm)
        config = self._engine.vllm_config
        self.runtime = runtime
        self.cache_tokens = None
        self.tokenizer = None if config.model_config.skip_tokenizer_init else self._engine.get_tokenizer()
        self.num_tokens = config.model_config.get_vocab_size()
        self.max_context = config.model_config.max_model_len
        self._max_sequences = max_sequences
        self.vocabulary = engine_vocabulary(config)
        self._families = Families(self.vocabulary, runtime)
        self._numbers = itertools.count()
        core = getattr(self._engine.engine_core, "engine_core", None)
        #: the controlled requests of an engine in this process
        self._controlled: Any = getattr(getattr(core, "scheduler", None), "_aici", None)
        if self._controlled is not None:
            self._controlled.can_be_woken = True
        #: whether `next_logits` works: vLLM must be started with max_logprobs=-1
        self.has_logits = reports_all(config)
        self._distributions: list[Distributions | PromptScores] = []
        #: the beginning of the names of this engine's requests in vLLM
        self._names = f"aici-{secrets.token_hex(4)}"

    def add(self, request: Request, placement: Placement | None = None) -> int:
        """Adds a request and returns its number. Generation begins with the next step.

        Raises ValueError for a prompt that the model cannot take, for requests that vLLM refuses, and for
        beam search, which vLLM's engine does not have; nothing of the request remains then. Errors of a
        controller, also for its argument, are in the result.
        """
        if request.beams > 1:
            raise ValueError("the vLLM engine has no beam search: beams must be 1")
        if request.sampling.bad_words:
            raise ValueError("the vLLM engine takes no bad_words: vLLM wants texts instead of their tokens")
        if request.sampling.typical_p < 1 or request.sampling.top_n_sigma > 0:
            raise ValueError("vLLM has neither typical_p nor top_n_sigma: set them in a controller's rows")
        from vllm.exceptions import VLLMValidationError

        tokens = first_tokens(
            self.tokenizer,
            request.prompt,
            self.vocabulary,
            num_tokens=self.num_tokens,
            max_context=self.max_context,
        )
        number = next(self._numbers)
        # those of a controller are one request of vLLM
        copies = request.n if request.controller is None else 1
        names = [f"{self._names}-{number}-{copy}" for copy in range(copies)]
        try:
            request = self._families.offers.open_for(number, request)
            for copy, name in enumerate(names):
                parameters = self._parameters(request, copy)
                self._engine.add_request(name, {"prompt_token_ids": tokens}, parameters)
        except BaseException as error:
            self._engine.abort_request(names)  # the parts that vLLM has already accepted
            self._families.offers.withdraw(number)
            if isinstance(error, VLLMValidationError):
                raise ValueError(str(error)) from None
            raise
        for name in names:
            self._families.add_family(name, number, request, tokens, events=request.controller is not None)
        return number

    def _parameters(self, request: Request, copy: int) -> Any:
        """Returns vLLM's parameters for a copy of a request, or for all copies that have a controller."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling, choices = request.sampling, 1
        extra: dict[str, Any] | None = None
        if request.controller is not None:
            arg = argument_bytes(request.arg).decode()
            extra = {"aici_controller": request.controller, "aici_arg": arg, "aici_events": True}
            extra |= {"aici_fork": True, "aici_copies": request.n, "aici_counts": request.count_allowed}
            if request.calls:
                extra["aici_calls"] = request.calls
            if request.owner is not None:
                extra["aici_owner"] = request.owner
            choices = self._max_sequences * request.n
            if sampling.temperature == 0:
                # vLLM refuses n > 1 if all texts would be the same; top_k=1 is the most likely token, too
                sampling = replace(sampling, temperature=1.0, top_k=1)
        return SamplingParams(
            n=choices,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            logit_bias=dict(sampling.logit_bias) or None,
            min_tokens=sampling.min_tokens,
            ignore_eos=sampling.ignore_eos,
            stop_token_ids=list(sampling.stop_token_ids) or None,
            # vLLM adds the choice index
            seed=None if sampling.seed is None else sampling.seed + copy,
            max_tokens=request.max_tokens,
            logprobs=request.top_logprobs if request.logprobs else None,
            extra_args=extra,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )

    def parked_requests(self) -> set[int]:
        """See `Engine.parked_requests`."""
        return self._families.suspended

    def cancel(self, request_id: int) -> None:
        """Ends all live sequences of a request."""
        self._end_request(request_id, FinishReason.CANCELLED)

    def _end_request(self, request_id: int, reason: FinishReason, error: AiciError | None = None) -> None:
        names = self._families.names(request_id)
        if names:
            self._engine.abort_request(names)
            self._families.end_request(request_id, reason, error)

    @property
    def busy(self) -> bool:
        """Whether a call of `step` has work to do."""
        return self._families.has_unfinished

    @property
    def stats(self) -> Counts:
        """Counts since the engine was created."""
        return self._families.counts

    def wake(self) -> None:
        """See `Engine.wake`. An engine in other processes cannot be woken."""
        if self._controlled is not None:
            self._controlled.end_sleep()

    def step(self) -> list[Event]:
        """Runs a step of vLLM's engine. Returns the events, oldest first."""
        self._advance()
        return self._families.recorder.drain()

    def _advance(self) -> None:
        outputs = self._engine.step()
        # a step without outputs has only waited for a controller
        self._families.counts.steps += bool(outputs)
        for output in outputs:
            if not any(some.read_output(output) for some in self._distributions):
                self._families.apply_output(output)
        for request_id, error in self._families.recorder.ended.too_large().items():
            self._end_request(request_id, FinishReason.ERROR, error)

    def next_logits(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Returns the log-probabilities after each of these token sequences: float32 [B, num_tokens].

        Running requests advance meanwhile. Raises ValueError for a sequence that the model cannot take, and
        if vLLM was not started with max_logprobs=-1.
        """
        return run_to_end(self.logits_in_pieces(sequences))

    def logits_in_pieces(
        self, sequences: Sequence[Sequence[int]]
    ) -> Generator[None, None, NDArray[np.float32]]:
        """Computes `next_logits` in pieces. The engine may step between pieces.

        Close the generator if you do not run it to its end.
        """
        if not self.has_logits:
            raise ValueError(
                "the probabilities of all tokens need a vLLM engine that is made with max_logprobs=-1"
            )
        names = f"{self._names}-next-{next(self._numbers)}"
        asked = Distributions(self._engine, names, sequences, self.num_tokens)
        yield from self._until_complete(asked)
        return asked.rows()

    def scores_in_pieces(self, tokens: Sequence[int], count: int) -> Generator[None, None, list[TokenScore]]:
        """Scores a text as the model reads it, in pieces as `logits_in_pieces` does.

        Returns the log-probability of each token but the first given those before it, at temperature 1 and
        without any controller, and the `count` most likely tokens at each place. Raises ValueError for a text
        that the model cannot take.
        """
        asked = PromptScores(self._engine, f"{self._names}-score-{next(self._numbers)}", tokens, count)
        yield from self._until_complete(asked)
        return asked.scores()

    def _until_complete(self, asked: Distributions | PromptScores) -> Generator[None, None, None]:
        """Steps until vLLM has computed what was asked for."""
        self._distributions.append(asked)
        try:
            while not asked.complete:
                self._advance()
                yield
        finally:
            self._distributions.remove(asked)
            asked.close()

    def results(self, request_id: int) -> list[GenerationResult]:
        """Returns the results of a request that has ended. They can be fetched once.

        Raises ValueError while the request is running.
        """
        return self._families.results(request_id)

    def drain(self) -> list[Event]:
        """Returns the events that no step has returned: of requests added, cancelled or closed since."""
        return self._families.recorder.drain()

    def close(self) -> None:
        """Ends all requests. Does not close vLLM's engine, which belongs to the caller."""
        for request_id in self._families.unfinished:
            self.cancel(request_id)
