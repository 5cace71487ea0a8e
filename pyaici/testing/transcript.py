"""What became of one sequence that was played."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.step import MidResult

#: eos: the model ended; stop: the controller did; length: `max_tokens`; error: see `error`;
#: work: ten times `max_tokens` steps were made
Reason = Literal["eos", "stop", "length", "error", "work"]


@dataclass(slots=True)
class Transcript:
    """One sequence, from the prompt to its end."""

    #: what follows the prompt
    text: str = ""
    #: the same as tokens
    tokens: list[int] = field(default_factory=list)
    #: what happened, in order: text that was sampled as it is, {what was forced}, <-what was taken back>
    history: str = ""
    reason: Reason = "work"
    error: AiciError | None = None
    #: what the controller printed
    log: str = ""
    #: what mid_process answered in each step; rows are copies
    answers: list[MidResult] = field(default_factory=list, repr=False)
    #: rounds that the controller skipped
    suspended: int = 0
    #: the variables that all sequences of the request share, at its end; of the first one only
    variables: dict[str, bytes] = field(default_factory=dict)
    #: the other sequences of the request, in the order in which they were made; of the first one only
    forks: list[Transcript] = field(default_factory=list)

    @property
    def all(self) -> list[Transcript]:
        """This one and its `forks`."""
        return [self, *self.forks]
