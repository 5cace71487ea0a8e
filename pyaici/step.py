"""What an engine says to the runtime in one step, and what it hears back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from aicirt.contract.messages import StepInput as StepInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aicirt.contract.errors import AiciError

#: flags of a result of `mid_process`: AICI_MID_* of aici.h
HOLD_END, SKIP_PRE, SKIP_POST = 1, 2, 4


class Verb(IntEnum):
    """What a controller wants; numbers as in aici.h."""

    STOP = 0
    CONTINUE = 1
    SUSPEND = 2
    FORK = 3
    SAMPLE = 4
    SPLICE = 5
    #: `mid_process` is not ready: the sequence sits out this step (runtime only, never a guest's)
    LATE = 6
    #: the sequence ended with `error`
    ERROR = 7


class RowKind(IntEnum):
    """How a row says which tokens may be sampled; numbers as in aici.h.

    `SAME` never reaches the engine: the client resolves it to the earlier row.
    """

    ALL = 0
    BITMASK = 1
    TOKEN = 2
    SPARSE = 3
    DENSE = 4


@dataclass(slots=True)
class PreResult:
    """Answer of `post_process` and `pre_process`: STOP, CONTINUE, SUSPEND, FORK or ERROR."""

    verb: Verb
    #: FORK: ids of the new sequences (the parent goes on as the first of the group)
    children: list[int] = field(default_factory=list)
    error: AiciError | None = None


@dataclass(slots=True)
class Row:
    """One constraint on the next token. Arrays are views of shared memory, valid until
    the next result for the same sequence, or until it is freed."""

    kind: RowKind
    #: BITMASK: uint32 [ceil(V / 32)], bit t & 31 of word t >> 5 is token t
    bits: NDArray[np.uint32] | None = None
    #: TOKEN
    token: int = -1
    #: SPARSE: the bias (0 or -inf) of the tokens that `tokens` does not list
    default: float = 0.0
    #: SPARSE: uint32 [n] and float32 [n]
    tokens: NDArray[np.uint32] | None = None
    #: SPARSE: float32 [n]; DENSE: float32 [V]
    bias: NDArray[np.float32] | None = None
    #: the controller's temperature for this token; None = the request's own
    temperature: float | None = None
    #: how many most likely tokens the next `StepInput.top` shall list
    top_k: int = 0


@dataclass(slots=True)
class MidResult:
    """Answer of `mid_process`: STOP, SAMPLE (with `row`), SPLICE, LATE or ERROR."""

    verb: Verb
    row: Row | None = None
    backtrack: int = 0
    ff_tokens: list[int] = field(default_factory=list)
    error: AiciError | None = None
    #: SAMPLE, SPLICE: an end-of-sequence token that this brings does not end the sequence; only where the
    #: engine has said that it does this (`Capabilities.hold_end`)
    hold_end: bool = False
    #: the next step tells nobody log-probability and allowed mass, unless `row.top_k` asks for tokens
    skip_post: bool = False


@dataclass(slots=True)
class StepResult:
    """All answers of one step, by sequence id; `logs` holds new stdout and stderr text.

    `variables`: what requests have written since this was last told, by one of the request's sequences: the
    last value of each name. All sequences of a request share them.
    """

    mid: dict[int, MidResult]
    logs: dict[int, str] = field(default_factory=dict)
    variables: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
