"""Every message of the data plane and the control plane, in one place.

Messages are msgpack arrays: a NamedTuple packs as its fields in order, with the
operation's number first. Fields are only ever added at the end. docs/protocol.md tells
the story; this file is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, Final, NamedTuple

import msgpack

from aicirt.contract.errors import ProtocolError

#: raised when a message changes incompatibly; both sides compare it when they meet
PROTOCOL_VERSION = 1
#: how many links of one client can be told apart by the numbers of the children that workers fork
LINK_NUMBERS = 128

# -- data plane: client -> worker ---------------------------------------------------------

START, STEP, CLONE, FREE, DUE, STAY = 1, 2, 3, 4, 5, 6


class Start(NamedTuple):
    """Makes a sequence from a template that the worker holds, and runs init_prompt."""

    op: int
    seq: int
    template: int
    #: prompt tokens, little-endian uint32
    prompt: bytes
    #: [[capability id, value], ...] of the engine, as in aici.h
    capabilities: list[list[int]]
    #: seeds random_get of the guest
    seed: int
    #: answer after init_prompt; else at once, and the sequence is late until it is over
    wait: bool = True


class StepInput(NamedTuple):
    """Reports what happened to one sequence since its last step. Engines make it; it is sent as it is.

    After a sampled token: ``tokens=[t], sampled=True``. After a splice: what was
    really removed and appended. Nothing happened (first step, suspended or late): defaults.
    """

    seq: int
    #: appended, after `backtrack` tokens were removed
    tokens: Sequence[int] = ()
    backtrack: int = 0
    #: ``tokens[0]`` was sampled under the sequence's row
    sampled: bool = False
    #: natural log of the probability of ``tokens[0]`` before masking, at the sampling
    #: temperature (1 when greedy); nan = not known
    logprob: float = nan
    #: probability of the allowed tokens together, in the same distribution; nan = not known
    allowed_mass: float = nan
    #: (token, logprob) of the most likely tokens, if the last `Row.top_k` asked for them
    top: list[tuple[int, float]] | None = None
    #: the engine has ended the sequence with these tokens: post_process sees them, or mid_process if
    #: there is none; the answer does not count, and the sequence is freed
    final: bool = False


class StepRequest(NamedTuple):
    """Requests one step of some sequences of this client."""

    op: int
    step: int
    #: answer with Pre first: some controller of the step has pre_process or post_process
    critical: bool
    #: rows that the engine has done with: [row, generation, row, generation, ...]
    released_rows: list[int]
    released_dense: list[int]
    inputs: Sequence[StepInput]


class Clone(NamedTuple):
    """Copies a sequence because the engine needs a copy (n > 1, beam search)."""

    op: int
    parent: int
    child: int


class Free(NamedTuple):
    """The engine has ended these sequences."""

    op: int
    seqs: list[int]


class Due(NamedTuple):
    """The engine has its logits and waits for the rows of this step; not sent if they are there already.

    `ready`: somebody else could go on, without a controller or with results of other workers.
    """

    op: int
    step: int
    ready: bool


class Stay(NamedTuple):
    """Keeps a sequence that is about to move to another worker, because the client needs it now."""

    op: int
    seq: int


# -- data plane: worker -> client ----------------------------------------------------------

STARTED, PRE, MID, CLONED, NOTICE, STAYED = 1, 2, 3, 4, 5, 6


class Started(NamedTuple):
    """Answer to Start, after init_prompt if that is waited for. `error`: `AiciError.to_wire` or None."""

    op: int
    seq: int
    error: list[Any] | None
    log: str


class Pre(NamedTuple):
    """The results of post_process and pre_process, except Continue.

    `verdicts`: [seq, verb, payload]; payload is the list of children of a fork, the
    error of an error, else None.
    """

    op: int
    step: int
    verdicts: list[list[Any]]


class Mid(NamedTuple):
    """The results of mid_process. `results`: one list per sequence, as `Sample`, `Splice` or `Bare`."""

    op: int
    step: int
    results: list[list[Any]]
    #: [[seq, text], ...]
    logs: list[list[Any]]
    #: [[seq, [[name, version, value], ...]], ...] of the requests that took part and have variables that were
    #: written since the client was told of them: the last value of each. `seq` is one of the request's
    #: sequences that took part; names and values are bytes
    variables: Sequence[list[Any]] = ()
    #: [[seq, flags], ...] of `results` whose flags are not 0: AICI_MID_* of aici.h, of which HOLD_END only
    #: for engines that have its capability
    flags: Sequence[list[int]] = ()


class Sample(NamedTuple):
    """A result with a row.

    kind ALL: nothing else counts; BITMASK: `row`, `generation`; TOKEN: `row` is the token;
    SPARSE: `row` holds `entries` pairs (uint32 token, float32 bias); DENSE: `row` is a dense row;
    SAME: as the sequence's last row.
    """

    seq: int
    verb: int
    kind: int
    row: int
    generation: int
    entries: int
    default: float
    temperature: float | None
    top_k: int


class Splice(NamedTuple):
    """A result that takes back and appends tokens."""

    seq: int
    verb: int
    backtrack: int
    ff_tokens: list[int]


class Bare(NamedTuple):
    """A result without a row: STOP, LATE, ERROR (`error` set)."""

    seq: int
    verb: int
    error: list[Any] | None = None


class Cloned(NamedTuple):
    """Answer to Clone."""

    op: int
    child: int
    error: list[Any] | None


class Stayed(NamedTuple):
    """Answer to Stay. `here` is false if it has moved: the other worker has it."""

    op: int
    seq: int
    here: bool


class Notice(NamedTuple):
    """The worker has dropped the client: nothing will be answered any more."""

    op: int
    number: int
    error: list[Any]


# -- positions of fields --------------------------------------------------------------------------
# Both sides read messages in every step; making NamedTuples of them takes longer than all else there.

#: in every message: its kind, then the sequence, step or child that it is about
OPERATION: Final = 0
SUBJECT: Final = 1
STEP_INPUTS = StepRequest._fields.index("inputs")
INPUT_SEQ: Final = 0
INPUT_FINAL: Final = 7
PRE_VERDICTS = Pre._fields.index("verdicts")
#: in every verdict of `Pre`
VERDICT_SEQ, VERDICT_VERB = 0, 1
MID_RESULTS, MID_VARIABLES = Mid._fields.index("results"), Mid._fields.index("variables")
#: in every result of `Mid`, then in those of one kind
RESULT_SEQ, RESULT_VERB = 0, 1
SAMPLE_KIND = Sample._fields.index("kind")
NOTICE_ERROR = Notice._fields.index("error")

# -- control plane (frames over sockets) -------------------------------------------------------


class Call(NamedTuple):
    """A request on a control socket: answered by a `Reply` with the same number."""

    number: int
    name: str
    args: dict[str, Any]
    #: descriptors that ride along
    fds: int = 0


class Reply(NamedTuple):
    """`error` is an `AiciError.to_wire`, or None and `value` counts."""

    number: int
    error: list[Any] | None
    value: Any
    #: descriptors that ride along
    fds: int = 0


REPLY_NUMBER, REPLY_ERROR, REPLY_VALUE = range(3)

#: the bytes of a message
encode: Callable[[NamedTuple], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def decode(data: bytes) -> list[Any]:
    """The fields of a message, the operation first. Raises ProtocolError if it is not one."""
    try:
        fields = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.exceptions.ExtraData, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a message of {len(data)} bytes is not msgpack: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise ProtocolError("a message is not an array")
    return fields
