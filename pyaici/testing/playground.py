"""A small engine that plays controllers in the real runtime with a simulated model."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ControllerError
from aicirt.contract.messages import StepInput
from aicirt.vocab.tokenizer import load_tokenizer
from pyaici.client.arguments import by_name
from pyaici.client.capabilities import ALL, Capabilities
from pyaici.client.masks import apply_row
from pyaici.client.results import MidResult, Row, StepResult
from pyaici.client.step import Step
from pyaici.recording.recorder import RecordingRuntime
from pyaici.recording.recording import Recording
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.scripting.call import find_call
from pyaici.tokens import Vocabulary

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError


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


#: eos: the model ended; stop: the controller ended; length: `max_tokens` reached; error: see `error`;
#: work: not ended after ten times `max_tokens` steps
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
    reason: Reason = "work"
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


class Sampler:
    """The model and the sampling options, which all sequences of a request share."""

    def __init__(
        self,
        wish: Wish,
        vocabulary: Vocabulary,
        *,
        temperature: float,
        seed: int,
        max_tokens: int,
        measure: bool,
    ) -> None:
        """`measure`: report log-probabilities to the controller even if it asks for no top-k."""
        self.wish = wish
        self.vocabulary = vocabulary
        self.temperature = temperature
        self.seed = seed
        self.max_tokens = max_tokens
        self.measure = measure

    def sample(self, seq: int, written: int, answer: MidResult, random: np.random.Generator) -> StepInput:
        """Samples a token under the row of an answer; returns the report for the next step."""
        row = answer.row
        assert row is not None
        temperature = self.temperature if row.temperature is None else row.temperature
        before = _logprobs(self.wish.logits(written) / (temperature or 1.0))
        logits = self.wish.logits(written)
        apply_row(logits, row)
        allowed = _logprobs(logits / (temperature or 1.0))
        token = int(random.choice(len(allowed), p=np.exp(allowed)) if temperature else allowed.argmax())
        if not (row.top_k or (self.measure and not answer.skip_post)):
            return StepInput(seq, [token], 0, True)
        top = None
        if row.top_k:
            best = np.argsort(-before, kind="stable")[: row.top_k]
            top = [(int(t), float(before[t])) for t in best]
        mass = float(np.exp(before)[np.isfinite(logits)].sum())
        return StepInput(seq, [token], 0, True, float(before[token]), min(mass, 1.0), top)


def _logprobs(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max()
    normalized: NDArray[np.float64] = shifted - log(np.exp(shifted).sum())
    return normalized


class Actor:
    """A live sequence, as the engine keeps it."""

    def __init__(self, seq: int, sampler: Sampler, prompt: list[int], number: int = 0) -> None:
        self._sampler = sampler
        self._random = np.random.default_rng([sampler.seed, number])
        self._tokens = list(prompt)
        self._prompt_tokens = len(prompt)
        #: after each token: bytes of the wanted text that are written or left out
        self._written = [0] * (len(prompt) + 1)
        self._report = StepInput(seq)
        self._history = ""
        self._answers: list[MidResult] = []
        self._error: AiciError | None = None
        #: whether an end token that is appended now does not end the sequence
        self._holds_end = False
        self.reason: Reason | None = None
        self.log = ""
        self.suspended = 0

    def take_report(self) -> StepInput:
        """Returns, once, what has happened since the last step."""
        report, self._report = self._report, StepInput(self._report.seq)
        return report

    def fork(self, seq: int, number: int) -> Actor:
        """Returns a new sequence that goes on from here. `number`: its place in the request."""
        child = Actor(seq, self._sampler, [], number)
        child._tokens, child._written = self._tokens.copy(), self._written.copy()
        child._prompt_tokens = self._prompt_tokens
        child._history, child._answers, child.log = self._history, self._answers.copy(), self.log
        child.suspended = self.suspended
        return child

    def act(self, answer: MidResult) -> None:
        """Carries out a result of mid_process."""
        row = None if answer.row is None else _copy(answer.row)
        self._answers.append(replace(answer, row=row))
        self._holds_end = answer.hold_end
        if answer.verb == Verb.SAMPLE:
            self._report = self._sampler.sample(self._report.seq, self._written[-1], answer, self._random)
            tokens = list(self._report.tokens)
            self._append(tokens, [self._sampler.wish.after(self._written[-1], tokens[0])])
            self._history += self._text(tokens)
        elif answer.verb == Verb.SPLICE:
            room = self._sampler.max_tokens - (len(self._tokens) - answer.backtrack - self._prompt_tokens)
            tokens = answer.ff_tokens[: max(room, 0)]
            written = self._written[-1]
            self._take_back(answer.backtrack)
            self._report = StepInput(self._report.seq, tokens, answer.backtrack)
            if answer.backtrack and tokens:  # replaced text counts as written, removed text does not
                self._append(tokens, [written] * len(tokens))
            else:
                self._append(tokens, self._sampler.wish.after_forced(self._written[-1], tokens))
            self._history += f"{{{text}}}" if (text := self._text(tokens)) else ""
        elif answer.verb != Verb.LATE:
            self.end("stop" if answer.verb == Verb.STOP else "error", answer.error)

    def end(self, reason: Reason, error: AiciError | None = None) -> None:
        """Ends the sequence."""
        self.reason, self._error = reason, error

    def transcript(self) -> Transcript:
        tokens = self._tokens[self._prompt_tokens :]
        return Transcript(
            self._text(tokens),
            tokens,
            self._history,
            self.reason or "work",
            self._error,
            self.log,
            self._answers,
            self.suspended,
        )

    def _append(self, tokens: list[int], written: list[int]) -> None:
        self._tokens += tokens
        self._written += written
        if tokens and tokens[-1] in self._sampler.vocabulary.eos and not self._holds_end:
            self.end("eos")
        elif len(self._tokens) - self._prompt_tokens >= self._sampler.max_tokens:
            self.end("length")

    def _take_back(self, count: int) -> None:
        if count:
            self._history += f"<-{self._text(self._tokens[-count:])}>"
            del self._tokens[-count:], self._written[-count:]
            self._prompt_tokens = min(self._prompt_tokens, len(self._tokens))

    def _text(self, tokens: list[int]) -> str:
        return self._sampler.vocabulary.decode(tokens).decode("utf-8", "replace")


def _copy(row: Row) -> Row:
    """Copies a row, so that it stays valid after the next result."""
    arrays: dict[str, Any] = {
        name: None if array is None else array.copy()
        for name, array in (("bits", row.bits), ("tokens", row.tokens), ("bias", row.bias))
    }
    return replace(row, **arrays)


#: the most rounds of a request, for each token of `max_tokens`
_WORK_FACTOR = 10

#: limits with which results do not depend on how busy the machine is: no sequence is late because its worker
#: got no CPU, and a single call may take longer, since a virtual machine charges for what its host takes away
PATIENT: Final = {"step_deadline_ms": 60_000, "step_grace_ms": 60_000, "critical_saved_ms": 50}


class Playground:
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
        self.runtime = RecordingRuntime(workers=1, limits={**PATIENT, **(limits or {})})
        self._end = weakref.finalize(self, self.runtime.close)
        self.runtime.register(self.vocabulary)
        self._variables: dict[str, bytes] = {}

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
    ) -> Transcript:
        """Plays one request from its prompt to its end; the model wants to write `wish`.

        `controller`: a .wasm file or the name of a bundled controller, whose `arg` is text or bytes, or a
        script (.py, .js, .mjs), whose `arg` is any JSON value. Forks are in `Transcript.forks`. An error that
        ends a sequence is in its `Transcript.error`. Raises the errors of `find_call`, `Runtime.upload` and
        `Runtime.instantiate` if a module or an argument is refused.
        """
        wasm, arg = find_call(controller, arg)
        module = self.runtime.upload(wasm).id
        tokens = self.tokenize(prompt.encode()) if isinstance(prompt, str) else list(prompt)
        first = self.runtime.instantiate(module, arg, tokens, capabilities=capabilities, seed=seed)
        sampler = Sampler(
            Wish(wish, self.vocabulary),
            self.vocabulary,
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            measure=self.runtime.wants_logprobs(first),
        )
        self._variables = {}
        everybody = [Actor(first, sampler, tokens)]
        live = {first: everybody[0]}
        try:
            for _ in range(_WORK_FACTOR * max_tokens):
                if live:
                    self._step(live, everybody)
        finally:
            self.runtime.free(live)
        transcripts = [actor.transcript() for actor in everybody]
        transcripts[0].forks = transcripts[1:]
        transcripts[0].variables = self._variables
        return transcripts[0]

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

    def __enter__(self) -> Playground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- one step -------------------------------------------------------------------------------

    def _step(self, live: dict[int, Actor], everybody: list[Actor]) -> None:
        """Runs one step of every live sequence of the request."""
        step = self.runtime.begin_step([actor.take_report() for actor in live.values()])
        here = dict(live)
        self._before(step, live, here, everybody)
        result = step.wait()
        _keep_logs(result, here)
        for values in result.variables.values():
            self._variables.update(by_name(values))
        for seq in [seq for seq in live if seq in result.mid]:
            live[seq].act(result.mid[seq])
            if live[seq].reason is not None:
                self._finish(live.pop(seq), seq)

    def _before(
        self, step: Step, live: dict[int, Actor], here: dict[int, Actor], everybody: list[Actor]
    ) -> None:
        """Carries out the results of post_process and pre_process; adds the children of forks to `here`."""
        for seq, verdict in step.wait_pre().items():
            actor = here[seq]
            if verdict.verb == Verb.FORK:
                for child in verdict.children:
                    here[child] = live[child] = actor.fork(child, len(everybody))
                    everybody.append(live[child])
            elif verdict.verb == Verb.SUSPEND:
                actor.suspended += 1
            else:
                actor.end("stop" if verdict.verb == Verb.STOP else "error", verdict.error)
                del live[seq]

    def _finish(self, actor: Actor, seq: int) -> None:
        """Reports the last token of a sequence that the engine ends; the runtime has ended the others."""
        if actor.reason not in ("eos", "length"):
            return
        step = self.runtime.begin_step([actor.take_report()._replace(final=True)])
        result = step.wait()
        _keep_logs(result, {seq: actor})
        for values in result.variables.values():
            self._variables.update(by_name(values))


def _keep_logs(result: StepResult, actors: Mapping[int, Actor]) -> None:
    for seq, text in result.logs.items():
        if seq in actors:
            actors[seq].log += text
