"""One live sequence: its tokens, where they came from, and what is still to be done for it."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from pyaici.engines.hf.request import WORK_FACTOR, FinishReason, GenerationResult, Origin, Request
from pyaici.engines.hf.sampler import Choice
from pyaici.step import StepInput

if TYPE_CHECKING:
    from aicirt.errors import AiciError
    from pyaici.engines.hf.cache import Slot
    from pyaici.engines.hf.text import TextTrail
    from pyaici.step import Row

NAN = math.nan


def derive_seed(seed: int, number: int) -> int:
    """The seed of a sequence's `number`-th copy: unrelated to its own, and the same in every run."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(eq=False, slots=True)
class Sequence:
    """State of one sequence. `slot.length` tokens are in the cache; the rest is fed in its next step."""

    id: int
    request_id: int
    request: Request
    seed: int
    slot: Slot
    trail: TextTrail
    #: number of its controller at the runtime
    control: int | None = None
    #: the log-probabilities of its tokens are asked for
    measured: bool = False
    parent: int | None = None
    tokens: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    #: tokens of the prompt that are left
    prompt_tokens: int = 0
    #: logits after the last token, float32 [N], while they hold
    logits: torch.Tensor | None = None
    #: sequences with the same object here have the same tokens: one of them is computed, the rest copy
    twins: object = field(default_factory=object)
    #: what the controller has not been told yet; None = nothing happened
    report: StepInput | None = None
    suspended: bool = False
    #: sum of the log-probabilities of its tokens, as far as they are known
    score: float = 0.0
    copies: int = 0
    #: tokens made, what was taken back included; a splice that adds none counts as one
    work: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    log: list[str] = field(default_factory=list)
    reason: FinishReason | None = None
    error: AiciError | None = None
    started: float = field(default_factory=time.perf_counter)
    first_token: float = NAN
    ended: float = NAN
    _generator: torch.Generator | None = None

    @property
    def pending(self) -> list[int]:
        """Tokens that the cache lacks."""
        return self.tokens[self.slot.length :]

    @property
    def new_tokens(self) -> int:
        """Tokens after what is left of the prompt."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def last_logits(self) -> torch.Tensor:
        """float32 [N] after the last token; there must have been a forward pass."""
        assert self.logits is not None
        return self.logits

    @property
    def final_score(self) -> float:
        """What beam search compares: the sum of log-probabilities divided by length ** length_penalty."""
        penalty: float = max(1, self.new_tokens) ** self.request.length_penalty
        return self.score / penalty

    @property
    def generator(self) -> torch.Generator:
        """Its own source of chance, so that what it draws does not depend on other sequences."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self.seed)
        return self._generator

    def note(
        self,
        tokens: list[int],
        backtrack: int = 0,
        *,
        sampled: bool = False,
        logprob: float = NAN,
        allowed_mass: float = NAN,
        top: list[tuple[int, float]] | None = None,
    ) -> None:
        """Sets what the controller is told in the next step; see `StepInput`."""
        if self.control is not None:
            self.report = StepInput(
                self.control,
                tokens=tokens,
                backtrack=backtrack,
                sampled=sampled,
                logprob=logprob,
                allowed_mass=allowed_mass,
                top=top,
            )

    def append(self, tokens: list[int], origin: Origin, logprob: float = NAN) -> str:
        """Appends tokens; the text that became readable. `logprob` is that of a single token."""
        self.tokens += tokens
        self.origins += [origin] * len(tokens)
        self.logprobs += [logprob] * len(tokens)
        if logprob == logprob:
            self.score += logprob
        if origin is Origin.PROMPT:
            self.prompt_tokens += len(tokens)
        elif origin is Origin.SAMPLED:
            self.sampled += len(tokens)
        else:
            self.forced += len(tokens)
        if origin is not Origin.PROMPT:
            self.work += len(tokens)
            if self.first_token != self.first_token:
                self.first_token = time.perf_counter()
        self._changed()
        return self.trail.append(tokens)

    def backtrack(self, count: int) -> str:
        """Takes back the last `count` tokens, of the prompt if need be; the text that went with them."""
        if count:
            self.score -= sum(value for value in self.logprobs[-count:] if value == value)
            for tokens in (self.tokens, self.origins, self.logprobs):
                del tokens[-count:]
            self.backtracked += count
            self.prompt_tokens = min(self.prompt_tokens, len(self.tokens))
        self._changed()
        return self.trail.backtrack(count)

    def _changed(self) -> None:
        # the last token is always fed again: its logits are what comes next
        self.slot.length = min(self.slot.length, max(0, len(self.tokens) - 1))
        self.logits = None
        self.twins = object()

    def fork(self, number: int, slot: Slot, control: int | None) -> Sequence:
        """A copy with a number, slot and controller of its own. `slot` must hold what this one's holds."""
        self.copies += 1
        return Sequence(
            id=number,
            request_id=self.request_id,
            request=self.request,
            seed=derive_seed(self.seed, self.copies),
            slot=slot,
            trail=self.trail.copy(),
            control=control,
            measured=self.measured,
            parent=self.id,
            tokens=self.tokens.copy(),
            origins=self.origins.copy(),
            logprobs=self.logprobs.copy(),
            prompt_tokens=self.prompt_tokens,
            logits=self.logits,
            twins=self.twins,
            score=self.score,
            work=self.work,
            sampled=self.sampled,
            forced=self.forced,
            backtracked=self.backtracked,
            started=self.started,
            first_token=self.first_token,
        )

    def choice(self, row: Row | None) -> Choice:
        """How its next token is to be chosen, under its controller's row."""
        sampling = self.request.sampling
        temperature = sampling.temperature
        if row is not None and row.temperature is not None:
            temperature = row.temperature
        return Choice(
            temperature=temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            generator=self.generator if temperature > 0 else None,
            row=row,
            measure=self.measured,
            list_top=0 if row is None else row.top_k,
        )

    def limit(self, max_context: int) -> FinishReason | None:
        """LENGTH or WORK if it has reached a limit."""
        if self.new_tokens >= self.request.max_tokens or len(self.tokens) >= max_context:
            return FinishReason.LENGTH
        if self.work >= WORK_FACTOR * self.request.max_tokens:
            return FinishReason.WORK
        return None

    def room(self, max_context: int) -> int:
        """How many tokens may still be appended."""
        return max(0, min(self.request.max_tokens - self.new_tokens, max_context - len(self.tokens)))

    def end(self) -> None:
        """Nothing more will happen to it."""
        self.ended = time.perf_counter()

    def result(self) -> GenerationResult:
        """What the user gets. The sequence must have ended."""
        assert self.reason is not None
        return GenerationResult(
            request=self.request_id,
            seq=self.id,
            parent=self.parent,
            text=self.trail.text(self.prompt_tokens),
            tokens=self.tokens,
            origins=self.origins,
            logprobs=self.logprobs,
            prompt_tokens=self.prompt_tokens,
            reason=self.reason,
            error=self.error,
            log="".join(self.log),
            score=self.final_score if self.request.beams > 1 else None,
            sampled=self.sampled,
            forced=self.forced,
            backtracked=self.backtracked,
            first_token_seconds=self.first_token - self.started,
            seconds=self.ended - self.started,
        )
