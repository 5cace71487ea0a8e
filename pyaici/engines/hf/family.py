"""The sequences of one request, and the room that they have in the cache together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aicirt.contract.errors import SpaceError

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from pyaici.engines.hf.budget import Budget, Claim
    from pyaici.engines.hf.sequence import Sequence
    from pyaici.engines.request import Request


def width(request: Request) -> int:
    """Sequences that the engine itself makes of a request: a search copies beams before it drops others."""
    return 2 * request.beams if request.beams > 1 else request.n


def most_tokens(request: Request, prompt: Seq[int], max_context: int) -> int:
    """How many tokens any of them may come to have."""
    return min(max_context, len(prompt) + request.max_tokens)


@dataclass(slots=True)
class Family:
    """Those that live, those that have ended, and their claim to room while any has a slot."""

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
