"""All messages of the data plane and the control plane.

Messages are msgpack arrays: a NamedTuple packs as its fields in order, with the
operation's number first. New fields are always added at the end. docs/protocol.md explains
the protocol; this file defines the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, Final, NamedTuple

import msgpack

from aicirt.contract.errors import ProtocolError

#: increased when a message changes incompatibly; both sides compare it when they connect
PROTOCOL_VERSION = 1
#: links of one client that sequence numbers can tell apart: the numbers of forks contain the link's number
LINK_NUMBERS = 128

# -- data plane: client -> worker ---------------------------------------------------------

START, STEP, CLONE, FREE, DUE = 1, 2, 3, 4, 5


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
    #: whether to answer after init_prompt; otherwise the answer comes at once, and the sequence is late until
    #: init_prompt has ended
    wait: bool = True
    #: of the offer that says who answers the controller's calls; "" if nobody does
    calls: str = ""


class StepInput(NamedTuple):
    """Reports what happened to one sequence since its last step. Engines create it; it is sent unchanged.

    After a sampled token: ``tokens=[t], sampled=True``. After a splice: the tokens that were
    actually removed and appended. If nothing happened (first step, suspended or late): the defaults.
    """

    seq: int
    #: tokens appended after `backtrack` tokens were removed
    tokens: Sequence[int] = ()
    backtrack: int = 0
    #: whether ``tokens[0]`` was sampled under the sequence's row
    sampled: bool = False
    #: natural log of the probability of ``tokens[0]`` before masking, at the sampling
    #: temperature (1 if greedy); nan = unknown
    logprob: float = nan
    #: total probability of the allowed tokens in the same distribution; nan = unknown
    allowed_mass: float = nan
    #: (token, logprob) of the most likely tokens, if the last `Row.top_logprobs` asked for them. Without
    #: tokens, it answers a `Look`: the list that it asked for, or, if the logits are in its row, an empty one
    top_logprobs: list[tuple[int, float]] | None = None
    #: the engine has ended the sequence with these tokens. They are passed to post_process, or to mid_process
    #: if the controller has no post_process; the answer is ignored, and the sequence is freed
    final: bool = False


class StepRequest(NamedTuple):
    """Requests one step of some sequences of this client."""

    op: int
    step: int
    #: whether to send Pre first: a controller of the step has pre_process or post_process
    critical: bool
    #: rows that the engine no longer needs: [row, generation, row, generation, ...]
    released_rows: list[int]
    released_dense: list[int]
    inputs: Sequence[StepInput]


class Clone(NamedTuple):
    """Copies a sequence because the engine needs a copy (n > 1, beam search)."""

    op: int
    parent: int
    child: int


class Free(NamedTuple):
    """Frees sequences that the engine has ended."""

    op: int
    seqs: list[int]


class Due(NamedTuple):
    """Reports that the engine has its logits and waits for this step's rows. Not sent if all have arrived.

    `ready`: other sequences could continue, without a controller or with results of other workers.
    """

    op: int
    step: int
    ready: bool


# -- data plane: worker -> client ----------------------------------------------------------

STARTED, PRE, MID, CLONED, NOTICE, WOKEN = 1, 2, 3, 4, 5, 6


class Started(NamedTuple):
    """Answers Start, after init_prompt if `Start.wait` is set. `error`: `AiciError.to_wire` or None."""

    op: int
    seq: int
    error: list[Any] | None
    log: str


class Pre(NamedTuple):
    """Holds the results of post_process and pre_process, except CONTINUE.

    `verdicts`: [seq, verb, payload]; payload is the list of children for FORK, the
    error for ERROR, else None. With SUSPEND it is 1 if the sequence waits: until `Woken` names it, its answer
    in every step will be the same.
    """

    op: int
    step: int
    verdicts: list[list[Any]]


class Mid(NamedTuple):
    """Holds the results of mid_process: one `Sample`, `Splice`, `Look`, `Follow` or `Bare` per sequence."""

    op: int
    step: int
    results: list[list[Any]]
    #: [[seq, text], ...]
    logs: list[list[Any]]
    #: [[seq, [[name, version, value], ...]], ...]: for each request that took part, the variables written
    #: since the last report to the client, each with its last value. `seq` is one of the request's sequences
    #: that took part; names and values are bytes
    variables: Sequence[list[Any]] = ()
    #: [[seq, flags], ...] for results whose flags are not 0: AICI_MID_* of aici.h; HOLD_END and DRAFTS only
    #: for engines that have their capabilities. With DRAFTS, the tokens follow: [seq, flags, tokens]
    flags: Sequence[list[Any]] = ()


class Truncation(NamedTuple):
    """Options of a row that leave out tokens; docs/abi.md defines them. 0: the request's own option."""

    top_p: float = 0.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 0.0
    top_n_sigma: float = 0.0

    @property
    def given(self) -> dict[str, float]:
        """The options that are set, by name."""
        return {name: value for name, value in self._asdict().items() if value}

    def over(self, other: Truncation) -> Truncation:
        """Returns these options, and those of `other` where none is set."""
        return Truncation._make(mine or theirs for mine, theirs in zip(self, other, strict=True))


class Sample(NamedTuple):
    """A result with a row.

    `kind` is ALL: the other fields of the row are ignored; BITMASK: `row`, `generation`; TOKEN: `row` is the
    token; SPARSE: `row` holds `entries` pairs (uint32 token, float32 bias); DENSE: `row` is a dense row;
    SAME: like the sequence's last row, which has this `row` and `generation` (-1 and 0 if it takes no space).
    """

    seq: int
    verb: int
    kind: int
    row: int
    generation: int
    entries: int
    default: float
    temperature: float | None
    top_logprobs: int
    truncation: Truncation | None = None


class Splice(NamedTuple):
    """A result that removes and appends tokens."""

    seq: int
    verb: int
    backtrack: int
    ff_tokens: list[int]


class Look(NamedTuple):
    """A result that asks for the distribution of the next token: the next input answers it.

    `top`: the number of most likely tokens; 0: all logits, for which there is a dense `row`, otherwise -1.
    `own`: without the logits of sequences that follow this one.
    """

    seq: int
    verb: int
    top: int
    row: int
    generation: int
    own: bool


class Follow(NamedTuple):
    """A result with which a sequence follows another one, whose samples its logits affect by `weight`.

    `model`: the name of the second model that computes them; empty: the engine's own.
    """

    seq: int
    verb: int
    leader: int
    weight: float
    model: str


class Bare(NamedTuple):
    """A result without a row: STOP, LATE, or ERROR, which has `error`."""

    seq: int
    verb: int
    error: list[Any] | None = None


class Cloned(NamedTuple):
    """Answers Clone."""

    op: int
    child: int
    error: list[Any] | None


class Notice(NamedTuple):
    """Reports that the worker has dropped the client and answers nothing further."""

    op: int
    number: int
    error: list[Any]


class Woken(NamedTuple):
    """Names sequences that wait no longer: the next step may have them again."""

    op: int
    number: int
    seqs: list[int]


# -- positions of fields --------------------------------------------------------------------------
# Both sides read messages in every step; turning them into NamedTuples would take most of the time.

#: in every message: its operation, then its sequence, step or child
OPERATION: Final = 0
SUBJECT: Final = 1
STEP_INPUTS = StepRequest._fields.index("inputs")
INPUT_SEQ: Final = 0
INPUT_TOKENS: Final = 1
INPUT_BACKTRACK: Final = 2
INPUT_FINAL: Final = 7
PRE_VERDICTS = Pre._fields.index("verdicts")
#: in each verdict of `Pre`
VERDICT_SEQ, VERDICT_VERB = 0, 1
MID_RESULTS, MID_VARIABLES = Mid._fields.index("results"), Mid._fields.index("variables")
#: in each result of `Mid`; SAMPLE_KIND only in `Sample`
RESULT_SEQ, RESULT_VERB = 0, 1
SAMPLE_KIND = Sample._fields.index("kind")
NOTICE_ERROR = Notice._fields.index("error")
WOKEN_SEQS = Woken._fields.index("seqs")

# -- control plane (frames over sockets) -------------------------------------------------------


class Call(NamedTuple):
    """A request on a control socket, answered by a `Reply` with the same number."""

    number: int
    name: str
    args: dict[str, Any]
    #: number of file descriptors sent along
    fds: int = 0


class Reply(NamedTuple):
    """Answers a `Call` with an error (`AiciError.to_wire`) or, if `error` is None, with a value."""

    number: int
    error: list[Any] | None
    value: Any
    #: number of file descriptors sent along
    fds: int = 0


REPLY_NUMBER, REPLY_ERROR, REPLY_VALUE = range(3)

#: returns the bytes of a message
encode: Callable[[NamedTuple], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def decode(data: bytes) -> list[Any]:
    """Returns the fields of a message, the operation first. Raises ProtocolError if `data` is no message."""
    try:
        fields = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.exceptions.ExtraData, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a message of {len(data)} bytes is not msgpack: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise ProtocolError("a message must be an array that is not empty")
    return fields
