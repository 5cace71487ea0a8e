"""What happens while the engine runs, as the engine tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.engines.request import FinishReason, Origin


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to sequence `seq` of request `request`."""

    request: int
    seq: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The sequence exists. `prompt` is its text; texts of later events follow it."""

    tokens: list[int]
    prompt: str


@dataclass(frozen=True, slots=True)
class TokensAppended(Event):
    """`text` is what became readable with these tokens: a character that is cut short waits for its rest."""

    tokens: list[int]
    text: str
    origin: Origin
    #: natural log-probabilities before masking, one for each token, if the request asked for them and they
    #: are known
    logprobs: list[float] | None = None
    #: for each token (token, log-probability) of the most likely ones in its place, if the request has
    #: `top_logprobs` and they are known
    top: list[list[tuple[int, float]]] | None = None
    #: how many tokens the controller's row allowed in the place of a sampled token, if the request has
    #: `count_allowed` and the engine sees the rows
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class BackTracked(Event):
    """The last `count` tokens were taken back, and with them `text`, the end of what was shown."""

    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Forked(Event):
    """`children` begin as copies of this sequence."""

    children: list[int]
    #: made by the engine (n > 1, beam search), not by the controller
    by_engine: bool


@dataclass(frozen=True, slots=True)
class Suspended(Event):
    """The sequence began to skip steps, as its controller asked; it goes on with its next event."""


@dataclass(frozen=True, slots=True)
class Log(Event):
    """The controller printed `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class VariablesChanged(Event):
    """Controllers of the request have written these variables, which all its forks share; `seq` is one of
    them. Values are the last ones; names are as `pyaici.variables.variable_name` tells them."""

    values: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """The sequence has ended."""

    reason: FinishReason
    error: AiciError | None
