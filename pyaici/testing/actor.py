"""One sequence as the playground's engine has it: its tokens, and what its controller is to be told."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from pyaici.masks import apply_row
from pyaici.step import MidResult, Row, StepInput, Verb
from pyaici.testing.transcript import Reason, Transcript

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aicirt.contract.errors import AiciError
    from pyaici.testing.wish import Wish
    from pyaici.tokens import Vocabulary


class Sampler:
    """What all sequences of a request share: the model, and how tokens are chosen."""

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
        """`measure`: the controller is to be told log-probabilities even if it asks for no top-k."""
        self.wish = wish
        self.vocabulary = vocabulary
        self.temperature = temperature
        self.seed = seed
        self.max_tokens = max_tokens
        self.measure = measure

    def sample(self, seq: int, said: int, answer: MidResult, random: np.random.Generator) -> StepInput:
        """A token under the row of this answer, as the report of it."""
        row = answer.row
        assert row is not None
        temperature = self.temperature if row.temperature is None else row.temperature
        before = _logprobs(self.wish.logits(said) / (temperature or 1.0))
        logits = self.wish.logits(said)
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
    """One live sequence."""

    def __init__(self, seq: int, sampler: Sampler, prompt: list[int], number: int = 0) -> None:
        self._sampler = sampler
        self._random = np.random.default_rng([sampler.seed, number])
        self._tokens = list(prompt)
        self._prompt_tokens = len(prompt)
        #: after each token: how much of what the model wants to say has been said
        self._said = [0] * (len(prompt) + 1)
        self._report = StepInput(seq)
        self._history = ""
        self._answers: list[MidResult] = []
        self._error: AiciError | None = None
        #: an end token that is appended now does not end the sequence
        self._holds_end = False
        self.reason: Reason | None = None
        self.log = ""
        self.suspended = 0

    def take_report(self) -> StepInput:
        """What has happened since the last step; it is told once."""
        report, self._report = self._report, StepInput(self._report.seq)
        return report

    def fork(self, seq: int, number: int) -> Actor:
        """A sequence that goes on from here."""
        child = Actor(seq, self._sampler, [], number)
        child._tokens, child._said = self._tokens.copy(), self._said.copy()
        child._prompt_tokens = self._prompt_tokens
        child._history, child._answers, child.log = self._history, self._answers.copy(), self.log
        child.suspended = self.suspended
        return child

    def act(self, answer: MidResult) -> None:
        """Does what mid_process has answered."""
        row = None if answer.row is None else _copy(answer.row)
        self._answers.append(replace(answer, row=row))
        self._holds_end = answer.hold_end
        if answer.verb == Verb.SAMPLE:
            self._report = self._sampler.sample(self._report.seq, self._said[-1], answer, self._random)
            tokens = list(self._report.tokens)
            self._append(tokens, [self._sampler.wish.after(self._said[-1], tokens[0])])
            self._history += self._text(tokens)
        elif answer.verb == Verb.SPLICE:
            room = self._sampler.max_tokens - (len(self._tokens) - answer.backtrack - self._prompt_tokens)
            tokens = answer.ff_tokens[: max(room, 0)]
            said = self._said[-1]
            self._take_back(answer.backtrack)
            self._report = StepInput(self._report.seq, tokens, answer.backtrack)
            if answer.backtrack and tokens:  # what is replaced has been said; what is only taken back has not
                self._append(tokens, [said] * len(tokens))
            else:
                self._append(tokens, self._sampler.wish.after_forced(self._said[-1], tokens))
            self._history += f"{{{text}}}" if (text := self._text(tokens)) else ""
        elif answer.verb != Verb.LATE:
            self.end("stop" if answer.verb == Verb.STOP else "error", answer.error)

    def end(self, reason: Reason, error: AiciError | None = None) -> None:
        """Nothing follows."""
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

    def _append(self, tokens: list[int], said: list[int]) -> None:
        self._tokens += tokens
        self._said += said
        if tokens and tokens[-1] in self._sampler.vocabulary.eos and not self._holds_end:
            self.end("eos")
        elif len(self._tokens) - self._prompt_tokens >= self._sampler.max_tokens:
            self.end("length")

    def _take_back(self, count: int) -> None:
        if count:
            self._history += f"<-{self._text(self._tokens[-count:])}>"
            del self._tokens[-count:], self._said[-count:]
            self._prompt_tokens = min(self._prompt_tokens, len(self._tokens))

    def _text(self, tokens: list[int]) -> str:
        return self._sampler.vocabulary.decode(tokens).decode("utf-8", "replace")


def _copy(row: Row) -> Row:
    """A row that stays as it is when the runtime writes the next one."""
    arrays: dict[str, Any] = {
        name: None if array is None else array.copy()
        for name, array in (("bits", row.bits), ("tokens", row.tokens), ("bias", row.bias))
    }
    return replace(row, **arrays)
