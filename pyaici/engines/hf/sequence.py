"""The sequences of one request, and the cache room that they share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from aicirt.contract.errors import SpaceError
from aicirt.contract.messages import StepInput
from pyaici.engines import WORK_FACTOR
from pyaici.engines.engine import FinishReason, Origin
from pyaici.engines.hf.sampler import Choice
from pyaici.engines.record import NAN, Record

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from pyaici.client.step import Row
    from pyaici.engines.engine import Request
    from pyaici.engines.hf.cache import Budget, Claim, Slot


def derive_seed(seed: int, number: int) -> int:
    """The seed of a sequence's `number`-th copy: unrelated to its own, and the same in every run."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(eq=False, slots=True, kw_only=True)
class Sequence(Record):
    """State of one sequence. `slot.length` tokens are in the cache; the rest is fed in its next step."""

    seed: int
    slot: Slot
    #: number of its controller at the runtime
    control: int | None = None
    #: its controller is told the log-probabilities of its tokens
    measured: bool = False
    #: what its controller said last: an end token that is appended now does not end it
    holds_end: bool = False
    #: and: nobody is told the log-probability of the token that is sampled now
    skips_post: bool = False
    #: logits after the last token, float32 [N], while they hold
    logits: torch.Tensor | None = None
    #: sequences with the same object here have the same tokens: one of them is computed, the rest copy
    twins: object = field(default_factory=object)
    #: what the controller has not been told yet; None = nothing happened
    report: StepInput | None = None
    copies: int = 0
    #: number of its last turn, counted over all sequences
    turn: int = 0
    #: what choosing its last token took, in the time of so many tokens of a pass
    sampling: float = 0.0
    _generator: torch.Generator | None = None

    @property
    def cost(self) -> float:
        """The cost of the sequence in a step, in tokens of a pass."""
        return max(1, self.missing) + self.sampling

    @property
    def missing(self) -> int:
        """How many tokens the cache lacks."""
        return len(self.tokens) - self.slot.length

    @property
    def pending(self) -> list[int]:
        """Tokens that the cache lacks."""
        return self.tokens[self.slot.length :]

    @property
    def last_logits(self) -> torch.Tensor:
        """float32 [N] after the last token; there must have been a forward pass."""
        assert self.logits is not None
        return self.logits

    @property
    def generator(self) -> torch.Generator:
        """The sequence's own random generator, so that its draws do not depend on other sequences."""
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
        """See `Record`."""
        text = Record.append(self, tokens, origin, logprob)
        self._changed()
        return text

    def backtrack(self, count: int) -> str:
        """See `Record`."""
        text = Record.backtrack(self, count)
        self._changed()
        return text

    def _changed(self) -> None:
        # the last token is always fed again: its logits are what comes next
        self.slot.length = min(self.slot.length, max(0, len(self.tokens) - 1))
        self.logits = None
        self.twins = object()

    def fork(self, number: int, slot: Slot, control: int | None) -> Sequence:
        """A copy with a number, slot and controller of its own. `slot` must hold what this one's holds."""
        self.copies += 1
        child = Sequence(
            id=number,
            request_id=self.request_id,
            request=self.request,
            seed=derive_seed(self.seed, self.copies),
            slot=slot,
            trail=self.trail,
            control=control,
            measured=self.measured,
            holds_end=self.holds_end,
            skips_post=self.skips_post,
            logits=self.logits,
            twins=self.twins,
            turn=self.turn,
            sampling=self.sampling,
        )
        self.copy_to(child)
        return child

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
            measure=self.request.logprobs or (self.measured and not self.skips_post),
            list_top=max(self.request.top_logprobs, 0 if row is None else row.top_k),
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


def width(request: Request) -> int:
    """Sequences that the engine itself makes of a request: a search copies beams before it drops others."""
    return 2 * request.beams if request.beams > 1 else request.n


def most_tokens(request: Request, prompt: Seq[int], max_context: int) -> int:
    """How many tokens any of them may come to have."""
    return min(max_context, len(prompt) + request.max_tokens)


@dataclass(slots=True)
class Family:
    """The sequences of a request, live and ended, and their claim to room while any has a slot."""

    request: Request
    budget: Budget
    #: most that any of them may come to have
    tokens: int
    claim: Claim | None = None
    #: sequences that have slots
    placed: int = 0
    unfinished: int = 0
    ended: list[Sequence] = field(default_factory=list)

    def admit(self) -> bool:
        """Claims room for what the request needs; whether there is any."""
        self.claim = self.budget.claim(width(self.request), self.tokens)
        return self.claim is not None

    def widen(self) -> None:
        """Claims room for one more than have slots. Raises SpaceError if there is none."""
        if self.claim is None or not self.budget.widen(self.claim, self.placed + 1):
            raise SpaceError(
                f"the key-value cache, which may have {self.budget.limit} tokens, has no room now for "
                f"another sequence of up to {self.tokens}"
            )

    def shrink(self) -> None:
        """Gives up what is not needed any more, when one has ended."""
        if self.claim is None:
            return
        if self.placed == 0:
            self.budget.release(self.claim)
            self.claim = None
        elif self.request.beams == 1:  # a search goes on to copy beams
            self.claim.sequences = self.placed
