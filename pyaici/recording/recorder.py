"""A runtime that records the exchange between an engine and a controller."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, EmptyMaskError, RuntimeFailure, TemplateGoneError
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import ALL, Argument, Capabilities, argument_bytes, variable_name
from pyaici.client.calls import Answerer, CallEvent, Offer
from pyaici.client.masks import apply_row
from pyaici.client.results import Look, MidResult, PreResult, Row, StepResult
from pyaici.client.runtime import Runtime
from pyaici.client.step import Step
from pyaici.recording.recording import (
    Event,
    Forked,
    Looked,
    RecordedCall,
    RecordedError,
    RecordedSequence,
    RecordedVocabulary,
    Recording,
    Sampled,
    Spliced,
    Suspended,
)

if TYPE_CHECKING:
    from pyaici.client.control import Control, Placement
    from pyaici.tokens import Vocabulary

#: seconds that `take` waits for the last events of calls, which aicirt sends at once
_LAST_SECONDS = 10.0


def allowed_by(row: Row, vocab_size: int) -> NDArray[np.bool_]:
    """Returns a mask of shape [vocab_size]: the tokens that the row does not forbid."""
    logits = np.zeros(vocab_size)
    apply_row(logits, row)
    allowed: NDArray[np.bool_] = np.isfinite(logits)
    return allowed


def digest_of(allowed: NDArray[np.bool_]) -> str:
    """Returns a digest of the set in 16 hex digits: BLAKE2b of the bits, packed from token 0 on."""
    return hashlib.blake2b(np.packbits(allowed, bitorder="little").tobytes(), digest_size=8).hexdigest()


class RecordingRuntime(Runtime):
    """A `Runtime` that records the first request after `record`; `take` returns the recording.

    Calls of its controller are recorded with all their answers if the request's offer is made by the
    `answerer` of this runtime, after `record`.
    """

    _vocabulary_of: Vocabulary | None = None
    _tape: _Tape | None = None
    #: (controller, max_tokens) if the next request is to be recorded
    _armed: tuple[str, int] | None = None

    def __init__(self, *arguments: Any, offering: RecordingRuntime | None = None, **options: Any) -> None:
        """See `Runtime`. `offering`: a runtime of the same aicirt whose `answerer` makes the offer."""
        super().__init__(*arguments, **options)
        self.answerer: _RecordingAnswerer = (
            _RecordingAnswerer(self._control) if offering is None else offering.answerer
        )

    def record(self, controller: str, max_tokens: int) -> None:
        """Records the next request. `controller`: its name for users. `max_tokens`: as in the request."""
        self._armed, self._tape = (controller, max_tokens), None
        self.answerer.records = True

    def take(self) -> Recording:
        """Returns the recording. Raises RuntimeFailure if there was no request since `record`."""
        tape, self._tape, self._armed = self._tape, None, None
        if tape is None:
            raise RuntimeFailure("nothing has been recorded: no request has started since `record`")
        if tape.recording.calls is not None:
            self.answerer.end_listening()
        return tape.end()

    @property
    def num_events(self) -> int:
        """`Recording.num_events` so far."""
        return 0 if self._tape is None else self._tape.recording.num_events

    def register(self, vocabulary: Vocabulary) -> None:
        """See `Runtime`."""
        super().register(vocabulary)
        self._vocabulary_of = vocabulary

    def place(
        self, controller: str, arg: Argument = b"", *, capabilities: Capabilities = ALL, **options: Any
    ) -> Placement:
        """See `Runtime`. An error of the request to be recorded, such as a refused argument, is recorded."""
        try:
            return super().place(controller, arg, capabilities=capabilities, **options)
        except AiciError as error:
            if self._armed is not None:
                self._begin_tape(arg, (), capabilities, 0, options.get("calls", "")).fail(error)
            raise

    def instantiate(
        self,
        controller: str,
        arg: Argument = b"",
        prompt: Sequence[int] = (),
        *,
        capabilities: Capabilities = ALL,
        seed: int | None = None,
        **options: Any,
    ) -> int:
        """See `Runtime`. Raises RuntimeFailure if the calls of a request to be recorded cannot be heard."""
        tape, armed = None, self._armed
        if armed is not None:
            seed = secrets.randbits(63) if seed is None else seed
            tape = self._begin_tape(arg, prompt, capabilities, seed, options.get("calls", ""))
        try:
            options |= {"capabilities": capabilities, "seed": seed}
            seq = super().instantiate(controller, arg, prompt, **options)
        except AiciError as error:
            if tape is not None:
                tape.fail(error)
            if isinstance(error, TemplateGoneError):  # the engine tries again
                self._armed = armed
            raise
        if tape is not None:
            tape.places[seq] = 0
        return seq

    def _begin_tape(
        self, arg: Argument, prompt: Sequence[int], capabilities: Capabilities, seed: int, calls: str
    ) -> _Tape:
        """Begins the recording."""
        assert self._armed is not None and self._vocabulary_of is not None
        controller, max_tokens = self._armed
        recording = Recording(
            controller=controller,
            arg=argument_bytes(arg),
            prompt=list(prompt),
            max_tokens=max_tokens,
            seed=seed,
            capabilities=capabilities.to_wire(),
            sequences=[RecordedSequence()],
        )
        tape = _Tape(recording, self._vocabulary_of)
        self.answerer.listen_for(tape, calls)
        self._tape, self._armed = tape, None
        return tape

    def begin_step(self, inputs: Sequence[StepInput]) -> Step:
        """See `Runtime`."""
        if self._tape is None:
            return super().begin_step(inputs)
        step = super().begin_step(inputs)
        self._tape.add_reports(inputs)
        return ObservedStep(step, self._tape)

    def clone(self, seq: int) -> int:
        """See `Runtime.clone`. Raises RuntimeFailure for a request that is recorded."""
        if self._tape is not None and seq in self._tape.places:
            raise RuntimeFailure(
                "a recorded request cannot be cloned: only forks that its controller makes are recorded"
            )
        return super().clone(seq)

    def free(self, seqs: Iterable[int]) -> None:
        """See `Runtime`."""
        seqs = list(seqs)
        if self._tape is not None:
            self._tape.forget(seqs)
        super().free(seqs)


class _RecordingAnswerer(Answerer):
    """Makes offers such that the calls of the recorded request are heard, with the answers of others, too."""

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        #: whether offers are made such that their calls can be recorded
        self.records = False
        #: tokens of such offers
        self._offered: set[str] = set()
        self._tape: _Tape | None = None
        self._token = ""
        #: whether the offer is being withdrawn, and whether it has been, after which no events come
        self._closing, self._withdrawn = False, threading.Event()

    def offer(
        self,
        calls: Sequence[Mapping[str, Any]],
        handle: Callable[[Offer, CallEvent], None],
        **options: Any,
    ) -> Offer:
        """See `Answerer.offer`."""
        if not self.records:
            return super().offer(calls, handle, **options)

        def collect(offer: Offer, event: CallEvent) -> None:
            self._collect(event)
            if event.id:
                handle(offer, event)

        offer = super().offer(calls, collect, **{**options, "watched": True, "results": True})
        self._offered.add(offer.token)
        return offer

    def listen_for(self, tape: _Tape, token: str) -> None:
        """Records the calls of the request that names this offer, if it names any."""
        if token:
            if token not in self._offered and token != self._token:
                raise RuntimeFailure(
                    "the request's calls cannot be recorded: offer them with the `answerer` of this "
                    "runtime, after `record`"
                )
            self._closing = False
            self._withdrawn.clear()
            tape.recording.calls = []
        self._tape, self._token = tape, token
        self.records = False
        self._offered.clear()

    def _collect(self, event: CallEvent) -> None:
        if event.token != self._token or self._tape is None:
            return
        if not event.id:
            self._withdrawn.set()
        elif not (self._closing and event.code == "gone"):  # the request has ended without this answer
            self._tape.add_call(event)

    def withdraw(self, token: str, *, forget: bool = True) -> None:
        """See `Answerer.withdraw`. The last events of the recorded offer come after it."""
        self._closing = self._closing or token == self._token
        super().withdraw(token, forget=forget and token != self._token)

    def end_listening(self) -> None:
        """Waits for the last events of a recording whose request has ended."""
        self.withdraw(self._token)
        self._withdrawn.wait(_LAST_SECONDS)
        token, self._token, self._tape = self._token, "", None
        self.withdraw(token)


class Observer(Protocol):
    """Hears what the controllers of a step answer."""

    def add_verdicts(self, verdicts: dict[int, PreResult]) -> None:
        """Hears the results of post_process and pre_process, as `Step.wait_pre` returns them."""

    def add_answers(self, result: StepResult) -> None:
        """Hears the results of mid_process, output, and variables."""


class ObservedStep(Step):
    """A step whose results an observer gets, too."""

    def __init__(self, step: Step, observer: Observer) -> None:
        self._step = step
        self._observer = observer
        self._pre_observed = False

    def wait_pre(self, *, ready: bool = False, patient: bool = True) -> dict[int, PreResult]:
        verdicts = self._step.wait_pre(ready=ready, patient=patient)
        if not self._pre_observed:
            self._pre_observed = True
            self._observer.add_verdicts(verdicts)
        return verdicts

    def wait(self, *, ready: bool = False, patient: bool = True) -> StepResult:
        self.wait_pre(ready=ready, patient=patient)
        result = self._step.wait(ready=ready, patient=patient)
        self._observer.add_answers(result)
        return result

    def abandon(self) -> None:
        self._step.abandon()


class _Tape:
    """The recording of a request so far."""

    def __init__(self, recording: Recording, vocabulary: Vocabulary) -> None:
        self.recording = recording
        self._vocabulary = vocabulary
        #: place in `Recording.sequences` by the runtime's number
        self.places: dict[int, int] = {}
        #: answers that the engine has not carried out yet, and whether each holds an end token
        self._pending: dict[int, tuple[Event, bool]] = {}
        #: by the id of an event
        self._calls: dict[str, RecordedCall] = {}

    def add_reports(self, inputs: Sequence[StepInput]) -> None:
        """Records how the engine has carried out the results of the last step."""
        for report in inputs:
            if report.seq not in self.places:
                continue
            sequence = self.recording.sequences[self.places[report.seq]]
            event, holds_end = self._pending.pop(report.seq, (None, False))
            if event is not None and not (isinstance(event, _Asked) and report.top_logprobs is None):
                sequence.events.append(_done(event, report))
            if report.final and sequence.finish_reason == "cancelled":
                is_end = bool(report.tokens) and report.tokens[-1] in self._vocabulary.eos and not holds_end
                sequence.finish_reason = "eos" if is_end else "length"

    def add_verdicts(self, verdicts: dict[int, PreResult]) -> None:
        """Records the results of post_process and pre_process."""
        for seq, verdict in verdicts.items():
            if seq not in self.places:
                continue
            place = self.places[seq]
            sequence = self.recording.sequences[place]
            if verdict.verb == Verb.FORK:
                children = []
                for child in verdict.children:
                    self.places[child] = len(self.recording.sequences)
                    children.append(self.places[child])
                    self.recording.sequences.append(RecordedSequence(parent=place))
                sequence.events.append(Forked(children))
            elif verdict.verb == Verb.SUSPEND:
                if sequence.events and isinstance(last := sequence.events[-1], Suspended):
                    last.rounds += 1
                else:
                    sequence.events.append(Suspended())
            elif verdict.verb in (Verb.STOP, Verb.ERROR) and sequence.finish_reason == "cancelled":
                _end_recorded(sequence, "stop" if verdict.verb == Verb.STOP else "error", verdict.error)

    def add_answers(self, result: StepResult) -> None:
        """Records the results of mid_process, output, and variables."""
        for seq, answer in result.mid.items():
            if seq in self.places:
                self._add_answer(seq, answer, self.recording.sequences[self.places[seq]])
        for seq, text in result.logs.items():
            if seq in self.places:
                self.recording.sequences[self.places[seq]].log += text
        for seq, values in result.variables.items():
            if seq in self.places:
                named = {variable_name(name): value for name, value in values.items()}
                self.recording.variables.update(named)

    def _add_answer(self, seq: int, answer: MidResult, sequence: RecordedSequence) -> None:
        if sequence.finish_reason != "cancelled":
            return  # the engine has ended the sequence; the answer to its last report does not count
        if answer.verb == Verb.SAMPLE:
            row = answer.row
            assert row is not None
            allowed = allowed_by(row, self._vocabulary.vocab_size)
            sampled = Sampled(-1, row.kind.name.lower(), int(allowed.sum()), digest_of(allowed))
            sampled.temperature, sampled.truncation = row.temperature, row.truncation
            self._pending[seq] = _Undone(sampled, allowed), answer.hold_end
        elif answer.verb == Verb.SPLICE:
            self._pending[seq] = Spliced(answer.backtrack, list(answer.ff_tokens)), answer.hold_end
        elif isinstance(answer, Look):
            self._pending[seq] = _Asked(answer), answer.hold_end
        elif answer.verb in (Verb.STOP, Verb.ERROR):
            _end_recorded(sequence, "stop" if answer.verb == Verb.STOP else "error", answer.error)

    def add_call(self, event: CallEvent) -> None:
        """Records a call, or its answer; in the order of the answers."""
        assert self.recording.calls is not None
        if event.code is None:
            arguments = event.arguments.decode("utf-8", "replace")
            self._calls[event.id] = RecordedCall(event.number, event.name, arguments)
        elif event.result and (call := self._calls.pop(event.id, None)) is not None:
            call.after, call.seconds = self.recording.num_events, round(event.seconds, 3)
            call.result = json.loads(event.result)
            self.recording.calls.append(call)

    def forget(self, seqs: Iterable[int]) -> None:
        """Records that the engine has freed sequences: an error if the last row allowed no token."""
        for seq in seqs:
            event, _ = self._pending.pop(seq, (None, False))
            if isinstance(event, _Undone) and event.num_allowed == 0:
                sequence = self.recording.sequences[self.places[seq]]
                _end_recorded(sequence, "error", EmptyMaskError("the row allows no token"))

    def fail(self, error: AiciError) -> None:
        """Records that the controller has not started."""
        first = self.recording.sequences[0]
        first.log = str(error.detail.get("log", ""))
        _end_recorded(first, "error", error)

    def end(self) -> Recording:
        """Returns the recording, with the bytes of its tokens, and the calls that were never answered."""
        recording, vocabulary = self.recording, self._vocabulary
        if recording.calls is not None:
            recording.calls += self._calls.values()
        used = {*recording.prompt, *vocabulary.eos}
        for sequence in recording.sequences:
            for event in sequence.events:
                if isinstance(event, Sampled):
                    used |= {event.token, *(token for token, _ in event.top_logprobs or ())}
                elif isinstance(event, Looked):
                    used |= {token for token, _ in event.top_logprobs or ()}
                elif isinstance(event, Spliced):
                    used |= {*event.tokens, *(event.done or ())}
        special = {token: name for token, name in vocabulary.special_names.items() if token in used}
        recording.vocabulary = RecordedVocabulary(
            Path(vocabulary.name).name,  # without the folder on this machine
            vocabulary.fingerprint,
            vocabulary.vocab_size,
            vocabulary.eos,
            vocabulary.bos,
            {token: vocabulary.token_bytes(token) for token in sorted(used) if token not in special},
            special,
            vocabulary.turns,
        )
        return recording


class _Undone(Sampled):
    """A row under which nothing has been sampled yet."""

    __slots__ = ("_allowed",)

    def __init__(self, sampled: Sampled, allowed: Any) -> None:
        super().__init__(-1, sampled.row, sampled.num_allowed, sampled.mask, True, sampled.temperature)
        self.truncation = sampled.truncation
        self._allowed = allowed

    def with_token(self, report: StepInput) -> Sampled:
        token = report.tokens[0]
        return Sampled(
            token,
            self.row,
            self.num_allowed,
            self.mask,
            bool(self._allowed[token]),
            self.temperature,
            _known(report.logprob),
            _known(report.allowed_mass),
            copy.copy(report.top_logprobs),
            self.truncation,
        )


class _Asked(Looked):
    """A look that has not been answered yet."""

    __slots__ = ("_look",)

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def with_answer(self, report: StepInput) -> Looked:
        if self._look.logits is None:
            return Looked(copy.copy(report.top_logprobs))
        return Looked(None, zlib.compress(self._look.logits.tobytes(), 1))


def _done(event: Event, report: StepInput) -> Event:
    if isinstance(event, _Asked):
        return event.with_answer(report)
    if isinstance(event, _Undone):
        return event.with_token(report)
    if isinstance(event, Spliced) and list(report.tokens) != event.tokens:
        event.done = list(report.tokens)
    return event


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _end_recorded(sequence: RecordedSequence, reason: str, error: AiciError | None = None) -> None:
    sequence.finish_reason = reason
    sequence.error = None if error is None else RecordedError(error.code, error.message)
