"""Reads and checks the results of callbacks in guest memory, and copies rows to shared memory.

No value from a guest is trusted: addresses, lengths, verbs, tokens and numbers are checked. Every error names
the field and what is allowed.
"""

from __future__ import annotations

import math
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.abi import (
    BIAS,
    CAP_BACKTRACK,
    CAP_DENSE,
    CAP_DRAFTS,
    CAP_FF_TOKENS,
    CAP_FOLLOW,
    CAP_HOLD_END,
    CAP_LOOK,
    CAP_TOP_LOGPROBS,
    CONTINUE,
    FOLLOW,
    FORK,
    GREEDY,
    LOOK,
    LOOK_LOGITS,
    MAX_MODEL_NAME,
    MID_DRAFTS,
    MID_FLAGS,
    MID_HOLD_END,
    MID_OWN,
    MID_RESULT,
    MID_SKIP_POST,
    MID_SKIP_PRE,
    POST_RESULT,
    PRE_RESULT,
    ROW_ALL,
    ROW_BITMASK,
    ROW_DENSE,
    ROW_SAME,
    ROW_SPARSE,
    ROW_TOKEN,
    SAMPLE,
    SPLICE,
    STOP,
    WAIT,
)
from aicirt.contract.errors import (
    CapabilityError,
    EmptyMaskError,
    ProtocolError,
    ResultError,
    SpaceError,
    counted,
)
from aicirt.contract.messages import Bare, Follow, Look, Sample, Splice, Truncation
from aicirt.ipc.segment import reserve
from aicirt.worker.hostapi import capability, context_of
from aicirt.worker.waits import Condition, Waiting

if TYPE_CHECKING:
    from aicirt.ipc.segment import Layout
    from aicirt.settings import RequestLimits
    from aicirt.wasm.instance import Instance
    from aicirt.worker.owners import Owner

#: the largest generation of a row
_LAST = 0xFFFFFFFF
#: number (-1: none) and generation of a row
Row = tuple[int, int]

_WORD = struct.Struct("<I")
_PRE = PRE_RESULT.packer("size", "num_forks")
_POST = POST_RESULT.packer("size", "verb")
_MID = MID_RESULT.packer("size", "flags")
_WAITS = PRE_RESULT.packer("waits", "wait_ms")
_WAIT = WAIT.packer("name", "version")
_TRUNCATION = MID_RESULT.packer("top_p", "top_n_sigma")
_POST_SIZE, _MID_SIZE = POST_RESULT.size, MID_RESULT.offsets["top_p"]
#: size of an aici_pre_result without what it waits for, which was added later
_PRE_SIZE, _WAITING_SIZE = PRE_RESULT.offsets["waits"], PRE_RESULT.size
#: size of an aici_mid_result without the fields that were added later: `flags`, and from `top_p` on
_OLD_MID_SIZE = MID_RESULT.offsets["flags"]
#: the size of an aici_mid_result with all fields, and the bytes of the last ones if none is set
_WHOLE_SIZE = MID_RESULT.size
_NO_OPTIONS = bytes(_WHOLE_SIZE - _MID_SIZE)
#: size of an entry of a SPARSE row
_BIAS_SIZE = BIAS.size
_ALL_BITS = 0xFFFFFFFF
#: bytes of a mask in which a token is searched first; they fit all tokens of one byte
_LOOK_BYTES = 32
_NEG_INF = -math.inf
#: after a LOOK only mid_process is called
_SKIPPED = MID_SKIP_PRE | MID_SKIP_POST
#: returns a Sample of a tuple of its fields, without a call of a Python function
_sample: Callable[[tuple[Any, ...]], Sample] = partial(tuple.__new__, Sample)


def read_pre(instance: Instance, address: int) -> tuple[int, int]:
    """Reads (verb, number of forks) of an aici_pre_result; FORK with 0 is STOP, with 1 CONTINUE.

    Raises ResultError if the result is invalid.
    """
    if address + _PRE_SIZE > instance.size:
        check_span(instance, address, _PRE_SIZE, "aici_pre_result")
    size, verb, forks = _PRE.unpack_from(instance.view, address)
    if size < _PRE_SIZE:
        raise too_small("aici_pre_result", size, _PRE_SIZE)
    if verb < FORK:
        return verb, forks
    if verb > FORK:
        raise ResultError(f"aici_pre_result: verb {verb} is not STOP, CONTINUE, SUSPEND or FORK")
    if forks < 2:
        return (CONTINUE if forks else STOP), 1
    return FORK, forks


def read_waiting(instance: Instance, address: int, limits: RequestLimits) -> Waiting | None:
    """Reads what a suspended sequence waits for; None if its aici_pre_result does not say.

    Raises ResultError if that is invalid.
    """
    (size,) = _WORD.unpack_from(instance.view, address)
    if size < _WAITING_SIZE:
        return None
    check_span(instance, address, _WAITING_SIZE, "aici_pre_result")
    at, count, milliseconds = _WAITS.unpack_from(instance.view, address + _PRE_SIZE)
    if count > limits.max_waits:
        raise ResultError(
            f"aici_pre_result: num_waits is {count}; the limit is {limits.max_waits} (max_waits)"
        )
    conditions = []
    for offset in range(0, count * WAIT.size, WAIT.size):
        check_span(instance, at + offset, WAIT.size, "aici_wait")
        name, length, version = _WAIT.unpack_from(instance.view, at + offset)
        if length > limits.max_variable_name:
            raise ResultError(
                f"aici_wait: a name of {length} bytes is over the limit of {limits.max_variable_name}"
            )
        conditions.append(Condition(instance.read(name, length), version))
    if not conditions and not milliseconds:
        return None
    return Waiting(conditions, time.monotonic() + milliseconds / 1000 if milliseconds else None)


def read_post(instance: Instance, address: int) -> int:
    """Reads the verb of an aici_post_result. Raises ResultError if the result is invalid."""
    if address + _POST_SIZE > instance.size:
        check_span(instance, address, _POST_SIZE, "aici_post_result")
    size, verb = _POST.unpack_from(instance.view, address)
    if size < _POST_SIZE:
        raise too_small("aici_post_result", size, _POST_SIZE)
    if verb > CONTINUE:
        raise ResultError(f"aici_post_result: verb {verb} is not STOP or CONTINUE")
    return verb  # type: ignore[no-any-return]


class RowPool:
    """The worker's allocator for one kind of row.

    Sequences keep rows while they wait. So an owner has at most as many as are left for others: a single one
    half of all, and whatever some have, there are some for the next one.
    """

    __slots__ = (
        "_content",
        "_first",
        "_free",
        "_held",
        "_holders",
        "_kind",
        "_memory",
        "_private",
        "_published",
        "_stride",
        "_views",
    )

    def __init__(self, memory: memoryview, layout: Layout, *, dense: bool) -> None:
        count = layout.num_dense if dense else layout.num_rows
        first = layout.num_rows if dense else 0
        start = layout.generations + 4 * first
        self._published = memory[start : start + 4 * count].cast("I")
        self._private = [0] * count  # the published copy is for the client's checks and is never read back
        self._memory = memory
        self._first = layout.dense if dense else layout.rows
        self._stride = layout.dense_bytes if dense else layout.row_bytes
        #: the part of a row that may have content
        self._content = slice(0, 4 * layout.vocab_size if dense else layout.row_bytes)
        #: each row's bytes, from its first use on
        self._views: list[memoryview | None] = [None] * count
        self._free = list(range(count - 1, -1, -1))
        #: the owner of each row in use, and how many each has
        self._holders: list[Owner | None] = [None] * count
        self._held: Counter[Owner | None] = Counter()
        self._kind = "dense" if dense else "mask"

    def take_row(self, owner: Owner | None = None) -> tuple[int, int, memoryview]:
        """Takes a free row for an owner; returns (number, generation, bytes to write).

        Raises SpaceError if none is left, or if the rest is for others.
        """
        private, free, held = self._private, self._free, self._held.get(owner, 0)
        if held >= len(free):
            raise SpaceError(
                f"no {self._kind} row is left for this owner, whose sequences have {held} (the other "
                f"{len(free)} are for others): run fewer at a time, or request more rows when you attach"
            )
        row = free.pop()
        view = self._views[row] or self._view(row)
        self._holders[row], self._held[owner] = owner, held + 1
        private[row] = self._published[row] = generation = private[row] + 1 & _LAST
        return row, generation, view

    def _view(self, row: int) -> memoryview:
        """Returns the bytes of a row that is used for the first time; without memory, it stays free."""
        start = self._first + row * self._stride
        try:
            reserve(self._memory, start, self._stride)
        except SpaceError:
            self._free.append(row)
            raise
        view = self._views[row] = self._memory[start : start + self._stride]
        return view

    def give_back(self, numbers: Sequence[int]) -> None:
        """Frees rows; `numbers` is [row, generation, ...].

        Raises ProtocolError, or ValueError for an odd number of them, if a row is not in use under that
        generation.
        """
        private, published, free, count = self._private, self._published, self._free, len(self._private)
        pairs = iter(numbers)
        for row, generation in zip(pairs, pairs, strict=True):
            if not 0 <= row < count:
                raise ProtocolError(f"there is no {self._kind} row {row}")
            if private[row] != generation or not generation & 1:
                raise ProtocolError(f"{self._kind} row {row} is not in use under generation {generation}")
            private[row] = published[row] = generation + 1 & _LAST
            free.append(row)
            owner, self._holders[row] = self._holders[row], None
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]

    def read(self, row: int, generation: int) -> memoryview:
        """Returns a view of a row's content; an empty one if it is not in use under this generation."""
        if not 0 <= row < len(self._private) or self._private[row] != generation:
            return memoryview(b"")
        return (self._views[row] or self._view(row))[self._content]

    @property
    def free(self) -> int:
        """Number of rows that can be taken."""
        return len(self._free)

    def release(self) -> None:
        """Releases the memory so that its mapping can be closed."""
        self._published.release()
        self._views.clear()


class RowWriter:
    """Turns an aici_mid_result into the message for the client."""

    __slots__ = (
        "_dense",
        "_layout",
        "_look",
        "_mask",
        "_mask_bytes",
        "_mask_words",
        "_nothing",
        "_rows",
        "_tail",
        "drafts",
        "owner",
    )

    def __init__(self, layout: Layout, rows: RowPool, dense: RowPool) -> None:
        self._layout = layout
        self._mask_words = layout.mask_words
        self._mask_bytes = 4 * layout.mask_words
        self._rows = rows
        self._dense = dense
        #: of the sequence whose result is read: it takes the rows
        self.owner: Owner | None = None
        #: the drafts of the last result that has any
        self.drafts: list[int] = []
        #: bits of the last mask word that belong to tokens
        self._tail = (1 << (layout.vocab_size - 32 * (layout.mask_words - 1))) - 1
        #: the bytes of a row that hold a mask, and those of them in which an earlier mask has allowed tokens
        self._mask = slice(0, self._mask_bytes)
        self._nothing = bytes(min(_LOOK_BYTES, self._mask_bytes))
        self._look = slice(0, len(self._nothing))

    def read_mid(
        self, instance: Instance, address: int, seq: int, length: int, last_row: Row | None
    ) -> tuple[Bare | Sample | Splice | Look | Follow, int, Row | None]:
        """Reads the aici_mid_result of sequence number `seq`, which has `length` tokens.

        `last_row`: the row to which AICI_ROW_SAME refers. Returns the message for the client, AICI_MID_*,
        and the row to which AICI_ROW_SAME refers in the next result.

        Raises ResultError, EmptyMaskError, CapabilityError or SpaceError.
        """
        try:
            fields = _MID.unpack_from(instance.view, address)
        except struct.error:
            fields = _MID.unpack(_at_the_end(instance, address))
        size, verb, kind, row, row_len, default, temperature, top, backtrack, ff, num_ff, flags = fields
        cut = None
        if size != _MID_SIZE:
            if size < _OLD_MID_SIZE:
                raise too_small("aici_mid_result", size, _OLD_MID_SIZE)
            if size < _MID_SIZE:
                flags = 0
            elif size >= _WHOLE_SIZE and verb == SAMPLE:
                start = address + _MID_SIZE
                if instance.view[start : address + _WHOLE_SIZE] != _NO_OPTIONS:
                    cut = _truncation(instance, start)
        if flags:
            flags = _known(flags, verb, instance)
            if flags & MID_DRAFTS:
                most = capability(instance, CAP_DRAFTS)
                self.drafts = self._tokens(instance, ff, num_ff, "draft", most)
        if verb == SAMPLE:
            if top:
                top = min(top, capability(instance, CAP_TOP_LOGPROBS))
            wanted = _temperature(temperature) if temperature else None
            if kind == ROW_BITMASK:
                last_row = row, generation = self._copied(instance, row, row_len)
                count = 0
            elif kind == ROW_SAME:
                if last_row is None:
                    raise ResultError("aici_mid_result: AICI_ROW_SAME, but this sequence had no row before")
                (row, generation), count = last_row, 0
            else:
                row, generation, count = self._other_row(instance, kind, row, row_len, default)
                last_row = (row if kind in (ROW_SPARSE, ROW_DENSE) else -1), generation
            sample = seq, SAMPLE, kind, row, generation, count, default, wanted, top
            return _sample(sample if cut is None else (*sample, cut)), flags, last_row
        if verb == STOP:
            return Bare(seq, STOP), flags, last_row
        if verb == SPLICE:
            tokens = self._ff_tokens(instance, ff, num_ff, backtrack, length)
            return Splice(seq, SPLICE, backtrack, tokens), flags, last_row
        if verb == LOOK:
            look = self._to_look(instance, seq, top, bool(flags & MID_OWN))
            return look, flags | _SKIPPED, last_row
        if verb == FOLLOW:
            model = _model_name(instance, ff, num_ff)
            return self._to_follow(instance, seq, row, temperature, model), flags, last_row
        raise ResultError(f"aici_mid_result: verb {verb} is not STOP, SAMPLE, SPLICE, LOOK or FOLLOW")

    def _to_follow(self, instance: Instance, seq: int, leader: int, weight: float, model: str) -> Follow:
        if not capability(instance, CAP_FOLLOW):
            raise CapabilityError("this engine does not mix the logits of sequences (AICI_CAP_FOLLOW)")
        if not math.isfinite(weight):
            raise ResultError(f"aici_mid_result: the weight (temperature) is {weight}; it must be finite")
        return Follow(seq, FOLLOW, leader, weight, model)

    def _to_look(self, instance: Instance, seq: int, top: int, own: bool) -> Look:
        """Returns the message that asks for the `top` most likely tokens; 0: all logits, in a dense row."""
        level = capability(instance, CAP_LOOK)
        if not level:
            raise CapabilityError(
                "this engine cannot show the distribution before a token is drawn (AICI_CAP_LOOK)"
            )
        if top:
            return Look(seq, LOOK, min(top, capability(instance, CAP_TOP_LOGPROBS)), -1, 0, own)
        if level < LOOK_LOGITS:
            raise CapabilityError(
                "this engine shows the most likely tokens only, not all logits (AICI_CAP_LOOK is "
                f"{level}): ask for some of them"
            )
        number, generation, _ = self._dense.take_row(self.owner)
        return Look(seq, LOOK, 0, number, generation, own)

    def _copied(self, instance: Instance, row: int, row_len: int) -> tuple[int, int]:
        nbytes = self._mask_bytes
        if row_len < self._mask_words:
            raise ResultError(
                f"aici_mid_result: row_len is {row_len} words; {self._mask_words} cover the vocabulary"
            )
        if row + nbytes > instance.size:
            check_span(instance, row, nbytes, "row")
        number, generation, target = self._rows.take_row(self.owner)
        target[self._mask] = instance.view[row : row + nbytes]
        if self._tail != _ALL_BITS:
            last = target[nbytes - 4 : nbytes].cast("I")
            last[0] &= self._tail
        if target[self._look] == self._nothing and not self._allows(target[self._mask]):
            self._rows.give_back((number, generation))
            raise _nothing_allowed()
        return number, generation

    def _allows(self, mask: memoryview) -> bool:
        """Returns whether a mask allows a token; the next mask is expected to allow tokens near the first."""
        first = len(mask) - len(bytes(mask).lstrip(b"\0"))
        start = min(first, len(mask) - len(self._nothing))
        self._look = slice(start, start + len(self._nothing))
        return first < len(mask)

    def _other_row(
        self, instance: Instance, kind: int, row: int, row_len: int, default: float
    ) -> tuple[int, int, int]:
        if kind == ROW_ALL:
            return 0, 0, 0
        if kind == ROW_TOKEN:
            if row >= self._layout.vocab_size:
                raise ResultError(f"aici_mid_result: token {row} is not below {self._layout.vocab_size}")
            return row, 0, 0
        if kind not in (ROW_SPARSE, ROW_DENSE):
            raise ResultError(f"aici_mid_result: there is no row kind {kind}")
        if not capability(instance, CAP_DENSE):
            raise CapabilityError("this engine does not support SPARSE or DENSE rows (AICI_CAP_DENSE)")
        if kind == ROW_SPARSE:
            return self._sparse(instance, row, row_len, default)
        return self._dense_row(instance, row, row_len)

    def _sparse(self, instance: Instance, row: int, count: int, default: float) -> tuple[int, int, int]:
        layout = self._layout
        if default not in (0.0, _NEG_INF):
            raise ResultError(f"aici_mid_result: row_default is {default}, but must be 0 or -inf")
        if count * _BIAS_SIZE > layout.row_bytes:
            raise ResultError(
                f"aici_mid_result: {count} sparse entries; the limit is {layout.row_bytes // _BIAS_SIZE}. "
                "Use AICI_ROW_DENSE for more"
            )
        check_span(instance, row, count * _BIAS_SIZE, "row")
        data = instance.read(row, count * _BIAS_SIZE)
        pairs = np.frombuffer(data, dtype=np.uint32).reshape(count, 2)
        bias = pairs[:, 1].view(np.float32) if count else np.empty(0, np.float32)
        if count and int(pairs[:, 0].max()) >= layout.vocab_size:
            raise ResultError(
                f"aici_mid_result: sparse token {int(pairs[:, 0].max())} is not below {layout.vocab_size}"
            )
        if not (bias < math.inf).all():
            raise ResultError("aici_mid_result: a sparse bias is NaN or +inf")
        if default == _NEG_INF and not (bias > _NEG_INF).any():
            raise _nothing_allowed()
        number, generation, target = self._rows.take_row(self.owner)
        target[: len(data)] = data
        return number, generation, count

    def _dense_row(self, instance: Instance, row: int, row_len: int) -> tuple[int, int, int]:
        size = self._layout.vocab_size
        if row_len < size:
            raise ResultError(f"aici_mid_result: row_len is {row_len}; a dense row has {size} entries")
        check_span(instance, row, size * 4, "row")
        data = instance.read(row, size * 4)
        bias = np.frombuffer(data, dtype=np.float32)
        if not (bias < math.inf).all():
            raise ResultError("aici_mid_result: a dense bias is NaN or +inf")
        if not (bias > _NEG_INF).any():
            raise _nothing_allowed()
        number, generation, target = self._dense.take_row(self.owner)
        target[: len(data)] = data
        return number, generation, size

    def _ff_tokens(
        self, instance: Instance, address: int, count: int, backtrack: int, length: int
    ) -> list[int]:
        """Returns the tokens of a splice, after all of it was checked."""
        if backtrack and not capability(instance, CAP_BACKTRACK):
            raise CapabilityError("this engine cannot backtrack (AICI_CAP_BACKTRACK)")
        if count and not capability(instance, CAP_FF_TOKENS):
            raise CapabilityError("this engine does not support forced tokens (AICI_CAP_FF_TOKENS)")
        if backtrack > length:
            raise ResultError(
                f"aici_mid_result: backtrack is {backtrack}, but the sequence has {counted(length, 'token')}"
            )
        return self._tokens(instance, address, count, "ff_token", context_of(instance).limits.max_ff_tokens)

    def _tokens(self, instance: Instance, address: int, count: int, what: str, limit: int) -> list[int]:
        """Reads a list of tokens."""
        if count > limit:
            raise ResultError(f"aici_mid_result: {count} {what}s; at most {limit} fit into one result")
        check_span(instance, address, count * 4, f"{what}s")
        tokens: list[int] = np.frombuffer(instance.read(address, count * 4), dtype=np.uint32).tolist()
        if count and max(tokens) >= self._layout.vocab_size:
            raise ResultError(f"aici_mid_result: {what} {max(tokens)} is not below {self._layout.vocab_size}")
        return tokens


def _model_name(instance: Instance, address: int, length: int) -> str:
    """Reads the name of a second model; empty if there is none. Raises ResultError."""
    if length > MAX_MODEL_NAME:
        raise ResultError(
            f"aici_mid_result: a model's name has {length} bytes; it has at most {MAX_MODEL_NAME}"
        )
    check_span(instance, address, length, "the model's name")
    return bytes(instance.read(address, length)).decode("utf-8", "replace")


def _at_the_end(instance: Instance, address: int) -> bytes:
    """Reads an aici_mid_result near the end of memory, which may be a shorter one, without `flags`."""
    check_span(instance, address, _OLD_MID_SIZE, "aici_mid_result")
    length = min(_MID_SIZE, instance.size - address)
    (size,) = struct.unpack_from("<I", instance.view, address)
    if size >= _MID_SIZE:
        check_span(instance, address, _MID_SIZE, "aici_mid_result")
        length = _MID_SIZE
    return instance.read(address, length).ljust(_MID_SIZE, b"\0")


def _known(flags: int, verb: int, instance: Instance) -> int:
    """Returns the flags that have an effect. Raises ResultError if one is unknown."""
    if flags > MID_FLAGS:
        raise ResultError(f"aici_mid_result: flags are {flags:#x}, but version 1 has only {MID_FLAGS:#x}")
    if flags & MID_HOLD_END and not capability(instance, CAP_HOLD_END):
        flags &= ~MID_HOLD_END
    if flags & MID_DRAFTS and (verb != SAMPLE or not capability(instance, CAP_DRAFTS)):
        flags &= ~MID_DRAFTS
    return flags


def check_span(instance: Instance, address: int, length: int, what: str) -> None:
    """Raises a ResultError that names the field unless the guest's memory has these bytes."""
    if address + length <= instance.size:
        return
    try:
        instance.check(address, length)  # the memory may have grown
    except ResultError as error:
        raise ResultError(f"{what}: {error.message}", field=what, **error.detail) from None


def too_small(what: str, size: int, least: int) -> ResultError:
    """Returns the error for a result whose own size leaves out fields."""
    return ResultError(f"{what}: size is {size}, at least {least} needed")


def _temperature(value: float) -> float:
    if value == GREEDY:
        return 0.0
    if 0 < value < math.inf:
        return value
    raise ResultError(
        f"aici_mid_result: temperature is {value:g}; it must be positive, 0 (the request's) or AICI_GREEDY"
    )


def _truncation(instance: Instance, address: int) -> Truncation:
    """Reads the fields from `top_p` on. Raises ResultError if one is out of range."""
    if address + _TRUNCATION.size > instance.size:
        check_span(instance, address, _TRUNCATION.size, "aici_mid_result")
    found = Truncation._make(_TRUNCATION.unpack_from(instance.view, address))
    for name in ("top_p", "min_p", "typical_p"):
        if not 0 <= (share := getattr(found, name)) <= 1:
            raise ResultError(f"aici_mid_result: {name} is {share:g}; it must be 0 (the request's) to 1")
    if not 0 <= found.top_n_sigma < math.inf:
        raise ResultError(
            f"aici_mid_result: top_n_sigma is {found.top_n_sigma:g}; it must be 0 (the request's) or positive"
        )
    return found


def _nothing_allowed() -> EmptyMaskError:
    return EmptyMaskError("the row of mid_process allows no token; to end the sequence return STOP")
