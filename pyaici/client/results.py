"""Results of workers: verbs and rows, checked before they are used.

A guest may have broken out of its sandbox, so no message of a worker is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.abi import MAX_DRAFTS, ROW_SAME, RowKind, Verb
from aicirt.contract.errors import AiciError, ProtocolError, SpaceError
from aicirt.contract.messages import (
    CLONED,
    MID,
    NOTICE,
    OPERATION,
    PRE,
    RESULT_SEQ,
    RESULT_VERB,
    SAMPLE_KIND,
    STARTED,
    SUBJECT,
    WOKEN,
    Sample,
    Truncation,
    decode,
)
from aicirt.ipc.segment import reserve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aicirt.ipc.segment import Segment

# looking up an Enum member costs as much as everything else that a usual row needs
_BITMASK, _DENSE, _SAMPLE = RowKind.BITMASK, RowKind.DENSE, Verb.SAMPLE
#: the least number of fields of each kind of message; more may follow
_FIELDS = {STARTED: 4, PRE: 3, MID: 4, CLONED: 3, NOTICE: 3, WOKEN: 3}
#: the fields of a result SAMPLE without options for leaving out tokens
_SAMPLE_FIELDS = Sample._fields.index("truncation")
#: children of one fork; the default of `max_forks` allows 16
MAX_CHILDREN = 1 << 12
#: top_logprobs of a row: engines answer at most 64, and sort the probabilities of so many tokens for each row
MAX_TOP_LOGPROBS = 1 << 12


@dataclass(slots=True)
class PreResult:
    """The result of `post_process` and `pre_process`: STOP, CONTINUE, SUSPEND, FORK or ERROR."""

    verb: Verb
    #: FORK: ids of the new sequences (the parent goes on as the first of the group)
    children: list[int] = field(default_factory=list)
    error: AiciError | None = None
    #: SUSPEND: the sequence waits for something, and would only be suspended again in a step before
    #: `Runtime.woken` names it
    waits: bool = False
    #: SUSPEND: the worker has not answered in time
    late: bool = False


@dataclass(slots=True)
class Row:
    """A constraint on the next token.

    Arrays are views of shared memory, valid until the next result for the same sequence, or until it
    is freed. Rows may be shared: do not change them.
    """

    kind: RowKind
    #: BITMASK: uint32 [ceil(V / 32)], bit t & 31 of word t >> 5 is token t
    bits: NDArray[np.uint32] | None = None
    #: TOKEN: the only token that is allowed
    token: int = -1
    #: SPARSE: the bias (0 or -inf) of the tokens that `tokens` does not list
    default: float = 0.0
    #: SPARSE: uint32 [n]
    tokens: NDArray[np.uint32] | None = None
    #: SPARSE: float32 [n]; DENSE: float32 [V]
    bias: NDArray[np.float32] | None = None
    #: the controller's temperature for this token; None = the request's own
    temperature: float | None = None
    #: number of most likely tokens that the next `StepInput.top_logprobs` must list
    top_logprobs: int = 0
    #: the controller's options for leaving out tokens; None = all are the request's own
    truncation: Truncation | None = None

    def permits(self, token: int) -> bool:
        """Returns whether the token may be sampled."""
        if self.kind == RowKind.BITMASK:
            assert self.bits is not None
            word = token >> 5
            return word < len(self.bits) and bool(int(self.bits[word]) >> (token & 31) & 1)
        if self.kind == RowKind.TOKEN:
            return token == self.token
        if self.kind == RowKind.SPARSE:
            assert self.tokens is not None and self.bias is not None
            biases = self.bias[self.tokens == token]
            return float(biases.sum() if len(biases) else self.default) > -math.inf
        if self.kind == RowKind.DENSE:
            assert self.bias is not None
            return token < len(self.bias) and float(self.bias[token]) > -math.inf
        return True


@dataclass(slots=True)
class MidResult:
    """The result of `mid_process`: STOP, SAMPLE (with `row`), SPLICE, LATE, ERROR, or `Look` or `Follow`."""

    verb: Verb
    row: Row | None = None
    backtrack: int = 0
    ff_tokens: list[int] = field(default_factory=list)
    error: AiciError | None = None
    #: SAMPLE, SPLICE: an end-of-sequence token of this result does not end the sequence; only if the engine
    #: supports that (`Capabilities.hold_end`)
    hold_end: bool = False
    #: SUSPEND (of `PreResult`, where an engine keeps both as one): see `PreResult.waits`
    waits: bool = False
    #: the next step needs no log-probability and allowed mass, unless `row.top_logprobs` asks for tokens
    skip_post: bool = False


@dataclass(slots=True)
class Look(MidResult):
    """The result LOOK: the controller wants to know the distribution of the next token before it decides.

    The next input of the sequence has no tokens, and answers it: see `StepInput.top_logprobs`.
    """

    #: number of most likely tokens; 0 = all logits
    top_logprobs: int = 0
    #: float32 [V], where the engine writes all logits, as the model has computed them: a view of shared
    #: memory, valid until the sequence's next result other than LATE
    logits: NDArray[np.float32] | None = None
    #: without the logits of sequences that follow this one
    own: bool = False


@dataclass(slots=True)
class Follow(MidResult):
    """The result FOLLOW: from now on the sequence gets the tokens of another one of its request, its leader.

    The leader's tokens are sampled from the sum of the logits of both and of all others that follow it, each
    times its weight; the leader's own weight makes the sum of all weights 1. The sequence is not stepped any
    more, and ends with its leader.
    """

    leader: int = 0
    weight: float = 0.0
    #: the second model that computes the sequence's logits; empty: the engine's own
    model: str = ""


@dataclass(slots=True)
class DraftedSample(MidResult):
    """The result SAMPLE of a controller that expects certain tokens after the sampled one.

    If the engine computes the logits after each of them in its next pass, those that are sampled indeed need
    no pass of their own. It may ignore them: they do not change what is sampled.
    """

    drafts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StepResult:
    """The results of one step, by sequence number.

    `logs`: new text on stdout and stderr. `variables`: the last value of each variable written since the
    previous report. All sequences of a request share its variables, which are listed under one of them.
    """

    mid: dict[int, MidResult]
    logs: dict[int, str] = field(default_factory=dict)
    variables: dict[int, dict[bytes, bytes]] = field(default_factory=dict)


# -- messages ------------------------------------------------------------------------------------------------


def read_message(data: bytes) -> list[Any]:
    """Decodes a message; checks its number of fields, and that the second is an int. Raises ProtocolError."""
    message = decode(data)
    kind = message[OPERATION]
    least = _FIELDS.get(kind) if type(kind) is int else None
    if least is None:
        raise ProtocolError("the message has an unknown kind")
    if len(message) < least or type(message[SUBJECT]) is not int:
        raise ProtocolError(f"a message of kind {kind} lacks fields")
    return message


def check_children(payload: Any, link: int, live: Container[int]) -> list[int]:
    """Returns the numbers of a fork's children, new sequences of this link. Raises ProtocolError."""
    if (
        type(payload) is not list
        or not 0 < len(payload) <= MAX_CHILDREN
        or not _are_ints(payload)
        or len(set(payload)) < len(payload)
    ):
        raise ProtocolError(f"a fork must list 1 to {MAX_CHILDREN} children, each a different number")
    for child in payload:
        if child >> 24 != 1 << 7 | link or child in live:
            raise ProtocolError(f"a fork has child {child}, which is not a new sequence of this worker")
    return payload


def check_splice(backtrack: Any, tokens: Any, vocab_size: int) -> list[int]:
    """Returns the tokens that a splice appends. Raises ProtocolError."""
    if type(backtrack) is not int or not 0 <= backtrack < 1 << 31:
        raise ProtocolError("a splice has a backtrack that is not a number of tokens")
    if type(tokens) is not list or not _are_ints(tokens):
        raise ProtocolError("a splice has tokens that are not a list of numbers")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        raise ProtocolError(f"a splice appends a token that is not between 0 and {vocab_size - 1}")
    return tokens


def check_drafts(verb: Verb, tokens: Any, vocab_size: int) -> list[int]:
    """Returns the tokens that a controller expects after a sampled one. Raises ProtocolError."""
    if verb != Verb.SAMPLE or type(tokens) is not list or len(tokens) > MAX_DRAFTS:
        raise ProtocolError(f"drafts are at most {MAX_DRAFTS} tokens, of a sequence that samples one")
    return check_splice(0, tokens, vocab_size)


def check_sampling(temperature: Any, top_logprobs: Any) -> None:
    """Checks temperature and top_logprobs of a row. Raises ProtocolError."""
    if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature < math.inf):
        raise ProtocolError("a row has an invalid temperature")
    if type(top_logprobs) is not int or not 0 <= top_logprobs <= MAX_TOP_LOGPROBS:
        raise ProtocolError("a row has an invalid top_logprobs")


def check_truncation(fields: Any) -> Truncation:
    """Returns the options of a row for leaving out tokens. Raises ProtocolError."""
    if type(fields) is not list or list(map(type, fields)) != [float, int, float, float, float]:
        raise ProtocolError("a row has a truncation that is not a list of numbers")
    found = Truncation._make(fields)
    shares = found.top_p, found.min_p, found.typical_p
    if (
        not all(0 <= share <= 1 for share in shares)
        or found.top_k >> 32
        or not 0 <= found.top_n_sigma < math.inf
    ):
        raise ProtocolError("a row has a truncation with a number that is out of range")
    return found


def check_woken(seqs: Any) -> list[int]:
    """Returns the sequences that wait no longer. Raises ProtocolError."""
    if type(seqs) is not list or not _are_ints(seqs):
        raise ProtocolError("woken sequences are not a list of numbers")
    return seqs


def read_variables(entries: Any) -> dict[bytes, bytes]:
    """Returns the last values of variables by name. Raises ProtocolError."""
    found = {name: value for name, _, value in entries}
    if not all(type(name) is type(value) is bytes for name, value in found.items()):
        raise ProtocolError("a variable has a name or a value that is not bytes")
    return found


def malformed(sender: str, error: Exception) -> str:
    """Returns the error message for a worker's invalid message."""
    what = error.message if isinstance(error, AiciError) else repr(error)[:200]
    return f"{sender} has sent an invalid message and is no longer used: {what}"


def _are_ints(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int}


# -- rows ----------------------------------------------------------------------------------------------------


#: a row that a sequence holds: its number (-1 if it takes no space in the segment), its generation, whether
#: it is dense, and the row
Held = tuple[int, int, bool, Row]


class SegmentRows:
    """Mask rows and dense rows that one worker gives out."""

    def __init__(self, segment: Segment) -> None:
        #: of each live sequence, the row that was read last; None = none yet
        self._held: dict[int, Held | None] = {}
        #: rows of later results that were discarded: the sequence can ask for them again
        self._unread: dict[int, Held] = {}
        #: dense rows (number, generation) for the logits of sequences that look
        self._looks: dict[int, tuple[int, int]] = {}
        #: whether any sequence has an unread row, or one for logits
        self._extra = False
        #: further holders of a row (number, whether it is dense), which a fork and its parent both hold
        self._shared: dict[tuple[int, bool], int] = {}
        self._released: tuple[list[int], list[int]] = ([], [])
        memory, layout = segment.memory, segment.layout
        rows = np.frombuffer(memory, np.uint32, layout.num_rows * layout.row_bytes // 4, layout.rows)
        self._rows = rows.reshape(layout.num_rows, layout.row_bytes // 4)
        #: each mask as a row: making one takes longer than everything else that a usual row needs
        self._masks = [Row(_BITMASK, bits) for bits in self._rows[:, : layout.mask_words]]
        dense = np.frombuffer(memory, np.float32, layout.num_dense * layout.dense_bytes // 4, layout.dense)
        self._dense = list(dense.reshape(layout.num_dense, layout.dense_bytes // 4)[:, : layout.vocab_size])
        self._memory, self._layout = memory, layout
        #: dense rows whose memory is known to be reserved
        self._reserved: set[int] = set()
        self._vocab_size = layout.vocab_size
        self._row_words = layout.row_bytes // 4

    def put_back(self, released: tuple[list[int], list[int]]) -> None:
        """Puts back the result of `take_released` if it could not be sent."""
        self._released[0].extend(released[0])
        self._released[1].extend(released[1])

    def take_released(self) -> tuple[list[int], list[int]]:
        """Returns (mask rows, dense rows) to release with the next message, each [row, generation, ...]."""
        released, self._released = self._released, ([], [])
        return released

    def sample(self, fields: list[Any]) -> MidResult:
        """Turns a Sample message into a result with views of the row.

        Raises ProtocolError, or one of `MALFORMED`, if the message is invalid.
        """
        try:
            seq, _, kind, number, generation, entries, default, temperature, top = fields
        except ValueError:  # few rows have options for leaving out tokens
            return self._truncated(fields)
        plain = temperature is None and top == 0
        if not plain:
            check_sampling(temperature, top)
        if type(generation) is not int:
            raise ProtocolError("a row has an invalid generation")
        held = self._held.get(seq)
        if self._extra:
            held = self._catch_up(seq, held)
        if kind == _BITMASK:
            if number < 0:
                raise ProtocolError(f"a mask has the invalid row number {number}")
            row = self._masks[number]
            if not plain:
                row = replace(row, temperature=temperature, top_logprobs=top)
        elif kind == ROW_SAME:
            if held is None or held[0] != number or held[1] != generation:
                problem = f"sequence {seq} reuses a row from a step whose results were not fetched"
                return MidResult(Verb.ERROR, error=ProtocolError(problem))
            row = held[3]
            if (row.temperature, row.top_logprobs) != (temperature, top):
                row = replace(row, temperature=temperature, top_logprobs=top)
            return MidResult(_SAMPLE, row)
        else:
            try:
                row = self._other_row(kind, number, entries, default)
            except SpaceError as error:
                self._released[1].extend((number, generation))
                return MidResult(Verb.ERROR, error=error)
            row.temperature, row.top_logprobs = temperature, top
            if kind not in (RowKind.SPARSE, RowKind.DENSE):
                number = -1
        if held is not None:
            self._release(held)
        self._held[seq] = number, generation, kind == _DENSE, row
        return MidResult(_SAMPLE, row)

    def _truncated(self, fields: list[Any]) -> MidResult:
        """Does the work of `sample` for a message with options. The row that the sequence holds has none."""
        truncation = check_truncation(fields[_SAMPLE_FIELDS])
        result = self.sample(fields[:_SAMPLE_FIELDS])
        if result.row is not None:
            result.row = replace(result.row, truncation=truncation)
        return result

    def look(self, fields: list[Any]) -> MidResult:
        """Turns a Look message into a result with a view of the row for the logits.

        Raises ProtocolError, or one of `MALFORMED`, if the message is invalid.
        """
        seq, _, top, number, generation, own = fields
        check_sampling(None, top)
        wrong = type(number) is not int or type(generation) is not int or type(own) is not bool
        if wrong or (number < 0) != (top > 0):
            raise ProtocolError("a look has an invalid row")
        self.end_look(seq)
        if number < 0:
            return Look(Verb.LOOK, top_logprobs=top, own=own)
        try:
            logits = self._dense_row(number)
        except SpaceError as error:
            self._released[1].extend((number, generation))
            return MidResult(Verb.ERROR, error=error)
        self._looks[seq] = number, generation
        self._extra = True
        return Look(Verb.LOOK, logits=logits, own=own)

    def end_look(self, seq: int) -> None:
        """Releases the row for logits that a sequence has, if any."""
        if (row := self._looks.pop(seq, None)) is not None:
            self._released[1].extend(row)
            self._extra = bool(self._unread or self._looks)

    def _catch_up(self, seq: int, held: Held | None) -> Held | None:
        """Returns the row that a sequence holds, now that it has another result."""
        self.end_look(seq)
        if (unread := self._unread.pop(seq, None)) is not None:
            if held is not None:
                self._release(held)
            held = self._held[seq] = unread
            self._extra = bool(self._unread or self._looks)
        return held

    def decline(self, entry: list[Any]) -> None:
        """Handles a discarded result: its mask is kept, as the sequence can ask for it again.

        The row that was read last stays in use. Raises ProtocolError, or one of `MALFORMED`, if the result is
        invalid.
        """
        if entry[RESULT_VERB] == Verb.LOOK:
            self.look(entry)
            self.end_look(entry[RESULT_SEQ])
        if entry[RESULT_VERB] != _SAMPLE or entry[SAMPLE_KIND] == ROW_SAME:
            return
        seq, _, kind, number, generation = entry[:5]
        if (before := self._unread.pop(seq, None)) is not None:
            self._release(before)
        if seq in self._held and kind not in (RowKind.SPARSE, RowKind.DENSE):
            held, self._held[seq] = self._held[seq], None
            self.sample(entry)
            if (unread := self._held[seq]) is not None:
                self._unread[seq] = unread
                self._extra = True
            self._held[seq] = held
            return
        if type(number) is not int or type(generation) is not int:
            raise ProtocolError("a row has an invalid number")
        if kind in (RowKind.BITMASK, RowKind.SPARSE, RowKind.DENSE):
            self._released[kind == RowKind.DENSE].extend((number, generation))

    def begin(self, seq: int) -> None:
        """Notes that a sequence is live, and has no row yet."""
        self._held[seq] = None

    def inherit(self, parent: int, child: int) -> None:
        """Has a child hold its parent's last row too: both may ask for it again."""
        held = self._held[child] = self._unread.get(parent) or self._held.get(parent)
        if held is not None:
            number, _, dense, _ = held
            if number >= 0:
                self._shared[number, dense] = self._shared.get((number, dense), 0) + 1

    def forget_sequence(self, seq: int) -> None:
        """Releases the rows of a sequence that has ended."""
        for held in (self._held.pop(seq, None), self._unread.pop(seq, None)):
            if held is not None:
                self._release(held)
        if self._extra:
            self.end_look(seq)

    def close(self) -> None:
        """Drops references to the segment; rows that the engine still holds keep it mapped. Idempotent."""
        self._held.clear()
        self._unread.clear()
        self._looks.clear()
        self._rows = np.empty((0, 0), np.uint32)
        self._masks.clear()
        self._dense.clear()
        self._memory = memoryview(b"")

    def _release(self, held: Held) -> None:
        number, generation, dense, _ = held
        if number < 0:
            return
        if self._shared and (others := self._shared.pop((number, dense), 0)):
            if others > 1:
                self._shared[number, dense] = others - 1
            return
        self._released[dense].extend((number, generation))

    def _other_row(self, kind: int, number: int, entries: int, default: float) -> Row:
        if kind == RowKind.ALL:
            return Row(RowKind.ALL)
        if type(number) is not int or number < 0:
            raise ProtocolError("a row has an invalid number")
        if kind == RowKind.TOKEN:
            if number >= self._vocab_size:
                raise ProtocolError(f"a row has token {number}, which is not below {self._vocab_size}")
            return Row(RowKind.TOKEN, token=number)
        if kind == RowKind.SPARSE:
            return self._sparse_row(number, entries, default)
        if kind == RowKind.DENSE:
            return Row(RowKind.DENSE, bias=self._dense_row(number))
        raise ProtocolError("a row has an unknown kind")

    def _dense_row(self, number: int) -> NDArray[np.float32]:
        """Returns a dense row. Raises SpaceError if it has no memory.

        The worker has reserved the memory, unless it has been broken out of.
        """
        row: NDArray[np.float32] = self._dense[number]
        if number not in self._reserved:
            layout = self._layout
            reserve(self._memory, layout.dense + number * layout.dense_bytes, layout.dense_bytes)
            self._reserved.add(number)
        return row

    def _sparse_row(self, number: int, entries: int, default: float) -> Row:
        """Returns a checked copy: the worker could change the segment after the check."""
        if type(entries) is not int or not 0 <= 2 * entries <= self._row_words:
            raise ProtocolError("a sparse row has an invalid number of entries")
        if type(default) is not float or default not in (0.0, -math.inf):
            raise ProtocolError("a sparse row has an invalid default")
        pairs = self._rows[number, : 2 * entries].copy().reshape(entries, 2)
        tokens, bias = pairs[:, 0], pairs[:, 1].view(np.float32)
        if entries and not (int(tokens.max()) < self._vocab_size and (bias < math.inf).all()):
            raise ProtocolError("a sparse row has an invalid token or bias")
        return Row(RowKind.SPARSE, default=default, tokens=tokens, bias=bias)
