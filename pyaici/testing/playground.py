"""Plays controllers as engines run them: the real runtime and generation loop, with a simulated model."""

from __future__ import annotations

import contextlib
import itertools
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ControllerError
from aicirt.contract.messages import StepInput
from aicirt.system.files import Closing
from aicirt.vocab.tokenizer import load_tokenizer
from pyaici.client.arguments import ALL, Capabilities
from pyaici.client.results import Look, MidResult, PreResult, Row, StepResult
from pyaici.client.step import Step
from pyaici.engines.batching.budget import Budget
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.model import Feed, Slot, TextCache, TextSlot
from pyaici.engines.batching.sampler import Choice, Chosen, NumpySampler
from pyaici.engines.engine import (
    Backtracked,
    Event,
    Forked,
    GenerationResult,
    Origin,
    Request,
    Sampling,
    Started,
    TokensAppended,
)
from pyaici.recording.recorder import ObservedStep, RecordingRuntime
from pyaici.recording.recording import Recording
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.scripting.call import find_call
from pyaici.tokens import Vocabulary

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError

#: eos: the model ended; stop: the controller ended; length: `max_tokens` reached; error: see `error`;
#: work: sampled or appended ten times `max_tokens` tokens, most of which it removed
Reason = Literal["eos", "stop", "length", "error", "work"]


@dataclass(slots=True)
class Transcript:
    """A sequence, from the prompt to its end."""

    #: the text after the prompt
    text: str = ""
    #: the same as tokens
    tokens: list[int] = field(default_factory=list)
    #: events in order: sampled text as it is, {forced text}, <-removed text> for a backtrack
    history: str = ""
    finish_reason: Reason = "work"
    error: AiciError | None = None
    #: what the controller printed
    log: str = ""
    #: the result of mid_process in each step; rows are copies
    answers: list[MidResult] = field(default_factory=list, repr=False)
    #: rounds that the controller skipped
    suspended: int = 0
    #: the variables at the end of the request, which all its sequences share; only in the first transcript
    variables: dict[str, bytes] = field(default_factory=dict)
    #: the other sequences of the request, in order of creation; only in the first transcript
    forks: list[Transcript] = field(default_factory=list)

    @property
    def all(self) -> list[Transcript]:
        """This transcript and its `forks`."""
        return [self, *self.forks]


#: limits with which results do not depend on how busy the machine is: no sequence is late because its worker
#: got no CPU, and a single call may take longer, since a virtual machine charges for what its host takes away
PATIENT: Final = {
    "step_deadline_ms": 60_000,
    "step_grace_ms": 60_000,
    "critical_saved_ms": 50,
    "receive_seconds": 10,  # all messages are there
}


class Playground(Closing):
    """Runs controllers in a real aicirt, with a simulated model (`Wish`). Use as a context manager.

    ::

        with Playground() as playground:
            transcript = playground.play("no_e.wasm", "the trees", arg="...")
            assert transcript.text == "th trs"
    """

    def __init__(
        self, vocabulary: Vocabulary | None = None, *, limits: Mapping[str, int] | None = None
    ) -> None:
        """`vocabulary`: default `small_vocabulary`. `limits`: as for `Runtime`, in addition to `PATIENT`."""
        self.vocabulary = vocabulary or small_vocabulary()
        tokenizer = self.vocabulary.tokenizer
        self.tokenize = load_tokenizer(tokenizer.kind, tokenizer.data, self.vocabulary.tokens)
        self.runtime = _PatientRuntime(workers=1, limits={**PATIENT, **(limits or {})})
        self._end = weakref.finalize(self, self.runtime.close)
        self._model = _WishfulModel(self.vocabulary)
        self._engine = BatchingEngine(
            self._model, self.vocabulary, None, self.runtime, keep=0, budget=Budget(None, uniform=False)
        )

    def play(
        self,
        controller: str | Path,
        wish: str | bytes = "",
        *,
        arg: Any = b"",
        prompt: str | Sequence[int] = "",
        max_tokens: int = 200,
        temperature: float = 0.0,
        seed: int = 1,
        capabilities: Capabilities = ALL,
        calls: Mapping[str, Any] | None = None,
        messages: Sequence[Any] | None = None,
    ) -> Transcript:
        """Plays one request from its prompt to its end; the model wants to write `wish`.

        `controller`: a .wasm file or the name of a bundled controller, whose `arg` is text or bytes, or a
        script (.py, .js, .mjs), whose `arg` is any JSON value. Forks are in `Transcript.forks`. An error that
        ends a sequence is in its `Transcript.error`. `calls`: who answers calls, by name: a function,
        or any other value, which is the answer. `messages`: what the script receives, and None after that.
        Raises the errors of `find_call`, `Runtime.upload` and
        `Runtime.instantiate` if a module or an argument is refused, and ValueError for options that no engine
        takes.
        """
        wasm, arg = find_call(controller, arg)
        request = _Request(
            self.tokenize(prompt.encode()) if isinstance(prompt, str) else prompt,
            self.runtime.upload(wasm).id,
            arg,
            Sampling(temperature, seed=seed),
            max_tokens=max_tokens,
            announced=capabilities,
            calls="" if calls is None else {name: _answering(answer) for name, answer in calls.items()},
            name="" if messages is None else "played",
        )
        self._model.wish = Wish(wish, self.vocabulary)
        scribe = self.runtime.scribe = _Scribe()
        number = self._engine.add(request)
        for message in () if messages is None else (*messages, None):
            self.runtime.answerer.send(request.name, message)
        try:
            while self._engine.busy:
                scribe.add_events(self._engine.step())
        except BaseException:
            self._engine.close()
            raise
        return scribe.transcripts_of(self._engine.results(number))

    def record(
        self, controller: str | Path, wish: str | bytes = "", *, max_tokens: int = 200, **options: Any
    ) -> Recording:
        """Plays as `play` does, and returns a recording of the exchange for a later `replay`.

        The recording contains an error of the controller, even if it has refused its argument.
        """
        self.runtime.record(str(controller), max_tokens)
        with contextlib.suppress(ControllerError):
            self.play(controller, wish, max_tokens=max_tokens, **options)
        return self.runtime.take()

    def close(self) -> None:
        """Ends the runtime."""
        self._end()


@dataclass(frozen=True, slots=True)
class _Request(Request):
    """A request for whose controller the engine announces only some of its capabilities."""

    announced: Capabilities = ALL

    @property
    def capabilities(self) -> Capabilities:
        return self.announced


def _answering(answer: Any) -> Callable[..., Any]:
    """Returns the function that gives an answer."""
    return answer if callable(answer) else lambda *_, **__: answer


# -- transcripts ---------------------------------------------------------------------------------------


class _Scribe:
    """Writes the transcripts of a request, from its engine's events and from what its controllers answer."""

    def __init__(self) -> None:
        #: in order of creation
        self._transcripts: list[Transcript] = []
        #: by the engine's numbers
        self._played: dict[int, Transcript] = {}
        #: by the runtime's numbers, without those that the engine has ended
        self._controlled: dict[int, Transcript] = {}

    def enter(self, control: int, parent: Transcript | None = None) -> None:
        """Begins the transcript of the request's first sequence, or of a fork of `parent`."""
        transcript = self._controlled[control] = Transcript()
        if parent is not None:
            transcript.answers, transcript.suspended = parent.answers.copy(), parent.suspended
        self._transcripts.append(transcript)

    def add_reports(self, inputs: Sequence[StepInput]) -> None:
        """Leaves out the answers to the last reports of sequences that the engine has ended."""
        for report in inputs:
            if report.final:
                self._controlled.pop(report.seq, None)

    def add_verdicts(self, verdicts: Mapping[int, PreResult]) -> None:
        """Counts suspended rounds, and enters forks."""
        for control, verdict in verdicts.items():
            if (transcript := self._controlled.get(control)) is None:
                continue
            if verdict.verb == Verb.SUSPEND:
                transcript.suspended += 1
            for child in verdict.children:
                self.enter(child, transcript)

    def add_answers(self, result: StepResult) -> None:
        """Keeps the results of mid_process."""
        for control, answer in result.mid.items():
            if (transcript := self._controlled.get(control)) is not None:
                row = None if answer.row is None else _copy(answer.row)
                kept = replace(answer, logits=None) if isinstance(answer, Look) else replace(answer, row=row)
                transcript.answers.append(kept)

    def add_events(self, events: Iterable[Event]) -> None:
        """Writes the histories."""
        for event in events:
            if isinstance(event, Started):
                self._played[event.seq] = self._transcripts[0]
            elif isinstance(event, Forked):
                for child in event.children:
                    self._played[child] = self._transcripts[len(self._played)]
                    self._played[child].history = self._played[event.seq].history
            elif isinstance(event, Backtracked):
                self._played[event.seq].history += f"<-{event.text}>"
            elif isinstance(event, TokensAppended) and event.text:
                forced = event.origin is Origin.FORCED
                self._played[event.seq].history += f"{{{event.text}}}" if forced else event.text

    def transcripts_of(self, results: Sequence[GenerationResult]) -> Transcript:
        """Adds the results. Returns the transcript of the first sequence, which has the others."""
        for result in results:
            transcript = self._played[result.seq]
            transcript.text, transcript.tokens, transcript.log = result.text, result.new_tokens, result.log
            # nothing cancels the request, and it has no beams
            transcript.finish_reason = cast("Reason", result.finish_reason.value)
            transcript.error = result.error
        first, *forks = self._transcripts
        first.forks, first.variables = forks, results[0].variables
        return first


def _copy(row: Row) -> Row:
    """Copies a row, so that it stays valid after the next result."""
    arrays: dict[str, Any] = {
        name: None if array is None else array.copy()
        for name, array in (("bits", row.bits), ("tokens", row.tokens), ("bias", row.bias))
    }
    return replace(row, **arrays)


class _PatientRuntime(RecordingRuntime):
    """A runtime that waits for controllers however long they take, and whose scribe gets their answers."""

    scribe: _Scribe

    def instantiate(self, *arguments: Any, **options: Any) -> int:
        """See `Runtime`. Returns after `init_prompt`, so that the first step is never late."""
        seq = super().instantiate(*arguments, **{**options, "wait": True})
        self.scribe.enter(seq)
        return seq

    def begin_step(self, inputs: Sequence[StepInput]) -> Step:
        """See `Runtime`."""
        step = super().begin_step(inputs)
        self.scribe.add_reports(inputs)
        return _PatientStep(step, self.scribe)


class _PatientStep(ObservedStep):
    """A step that waits for its results, whatever the engine asks for."""

    def wait_pre(self, *, ready: bool = False, patient: bool = True) -> dict[int, PreResult]:
        return super().wait_pre()

    def wait(self, *, ready: bool = False, patient: bool = True) -> StepResult:
        return super().wait()


# -- the simulated model -------------------------------------------------------------------------------

#: the cost in logits of each byte of the text that is left out: e^-4 is 2 %
_PER_BYTE = 4.0
#: the cost of a shorter token than the longest that fits, for each rank
_SHORTER = 3.0
#: how much less likely a token that never occurs in the text is than leaving out the rest and ending
_ELSEWHERE = 40.0


class Wish:
    """The distribution of a model that wants to write `text` and then to end.

    The most likely token is the longest that comes next in the text. If it is forbidden, the model writes the
    allowed token that comes soonest in the text, and leaves out the bytes before it. If there is no such
    token the model ends; if it cannot end it writes any token, lower ids first.
    """

    def __init__(self, text: str | bytes, vocabulary: Vocabulary) -> None:
        self._text = text.encode() if isinstance(text, str) else text
        self._vocabulary = vocabulary
        self._ids: dict[bytes, int] = {}
        lengths: defaultdict[int, set[int]] = defaultdict(set)
        for token, piece in enumerate(vocabulary.tokens):
            if piece and piece not in self._ids:
                self._ids[piece] = token
                lengths[piece[0]].add(len(piece))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def logits(self, written: int) -> NDArray[np.float64]:
        """Returns float64 logits [vocab_size] after `written` bytes of the text were written or left out."""
        size = self._vocabulary.vocab_size
        left = len(self._text) - written
        logits: NDArray[np.float64] = (
            -_ELSEWHERE - _PER_BYTE * left - 1e-3 * np.arange(size, dtype=np.float64)
        )
        logits[len(self._vocabulary.tokens) :] = -np.inf
        for at in range(len(self._text) - 1, written - 1, -1):  # a token keeps its best logit
            for rank, token in enumerate(self._tokens_at(at)):
                logits[token] = max(logits[token], -_PER_BYTE * (at - written) - _SHORTER * rank)
        logits[list(self._vocabulary.eos)] = -_PER_BYTE * left
        return logits

    def after(self, written: int, token: int) -> int:
        """Returns how many bytes of the text are written or left out after this token is sampled."""
        piece = self._vocabulary.decode([token])
        found = self._text.find(piece, written) if piece else -1
        return written if found < 0 else found + len(piece)

    def after_forced(self, written: int, tokens: Sequence[int]) -> list[int]:
        """Returns how many bytes of the text are written after each forced token: a common prefix counts."""
        forced = self._vocabulary.decode(tokens)
        wanted = self._text[written : written + len(forced)]
        pairs = zip(forced, wanted, strict=False)
        common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        lengths = itertools.accumulate(len(self._vocabulary.decode([token])) for token in tokens)
        return [written + min(length, common) for length in lengths]

    def _tokens_at(self, at: int) -> list[int]:
        """Returns the tokens that match the text at this place, longest first."""
        found = []
        for length in self._lengths.get(self._text[at], ()):
            token = self._ids.get(self._text[at : at + length])
            if token is not None and at + length <= len(self._text):
                found.append(token)
        return found


class _SampledToken(int):
    """A token that the sampler has chosen. The engine feeds it back to the model, which knows its own."""


class _WishfulSampler(NumpySampler):
    """Marks the tokens that it chooses."""

    def choose(
        self, masked: NDArray[np.float32], plain: NDArray[np.float32] | None, choices: Sequence[Choice]
    ) -> list[Chosen]:
        """See `NumpySampler.choose`."""
        chosen = super().choose(masked, plain, choices)
        for choice in chosen:
            choice.token = _SampledToken(choice.token)
        return chosen


@dataclass(eq=False, slots=True)
class _Reader(TextSlot):
    """A sequence as the model has read it: its tokens, and how much of the wish was written by then."""

    #: bytes of the wish that are written or left out before the first token, and after each
    written: list[int] = field(default_factory=lambda: [0])
    #: how many of the last tokens are drafts, of which those beyond `length` were not sampled
    drafts: int = 0

    def read(self, tokens: Sequence[int], wish: Wish) -> int:
        """Appends tokens, and returns how many bytes of the wish are written or left out after them."""
        valid = max(self.length, len(self.tokens) - self.drafts)
        del self.tokens[valid:], self.written[valid + 1 :]
        self.drafts = 0
        start, removed = self.length, self.tokens[self.length :]
        if removed[: len(tokens)] == tokens:  # the last token again, for the logits after it
            after = self.written[start + 1 : start + 1 + len(tokens)]
        elif not self.tokens:  # the prompt
            after = [0] * len(tokens)
        elif removed:  # replaced text counts as written, removed text does not
            after = [self.written[-1]] * len(tokens)
        elif isinstance(tokens[0], _SampledToken):
            after = [wish.after(self.written[start], tokens[0])]
        else:
            after = wish.after_forced(self.written[start], tokens)
        self.tokens[start:], self.written[start + 1 :] = tokens, after
        self.length = len(self.tokens)
        return self.written[-1]


class _WishfulCache(TextCache):
    """See `_Reader`."""

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        assert isinstance(source, _Reader) and isinstance(target, _Reader)
        super().copy(source, target, length)
        target.written = source.written.copy()


class _WishfulModel:
    """The model of a `BatchingEngine` (see `Runner`) that plays one request at a time, with its wish."""

    wish: Wish
    #: a pass costs more than all its tokens, as on a GPU: no prompt or splice is fed in pieces
    pass_cost = 1 << 30
    #: not measured: the schedule does not depend on the machine
    token_seconds = 0.0
    max_tokens = sys.maxsize

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.cache = _WishfulCache(_Reader)
        self.sampler = _WishfulSampler()
        self.num_tokens = self.num_logits = vocabulary.vocab_size

    def run(self, feeds: Sequence[Feed]) -> list[NDArray[np.float32]]:
        """See `Runner`; the engine asks for the logits after the last token, and after drafts."""
        lines: list[Any] = []
        for feed in feeds:
            assert isinstance(feed.slot, _Reader)
            if not feed.every:
                lines.append(self._logits(feed.slot, feed.tokens))
                continue
            first, *drafts = feed.tokens  # as if they were sampled
            each: list[Sequence[int]] = [[first], *([_SampledToken(draft)] for draft in drafts)]
            lines.append([self._logits(feed.slot, tokens) for tokens in each])
            feed.slot.drafts = len(drafts)
        return lines

    def _logits(self, reader: _Reader, tokens: Sequence[int]) -> NDArray[np.float32]:
        return self.wish.logits(reader.read(tokens, self.wish)).astype(np.float32)
