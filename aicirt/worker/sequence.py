"""Sequences: the guest instance and the progress in the current step."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Protocol

from aicirt.contract.abi import (
    ARG_HAS_LOGPROB,
    ARG_LOOKED,
    ARG_SAMPLED,
    CAP_FORK,
    CAP_SUSPEND,
    CONTINUE,
    FORK,
    INLINE_GROUP,
    INLINE_TOKENS,
    MID_SKIP_POST,
    MID_SKIP_PRE,
    PROMPT,
    STEP_ARG,
    STOP,
    SUSPEND,
    TOP,
    Export,
)
from aicirt.contract.errors import (
    AiciError,
    CapabilityError,
    ForkLimitError,
    LivelockError,
    ProtocolError,
    ResultError,
    TimeLimitError,
    counted,
)
from aicirt.contract.messages import Splice
from aicirt.wasm.host import GuestExit
from aicirt.worker.hostapi import GuestContext
from aicirt.worker.results import check_span, read_post, read_pre, read_waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from aicirt.contract.messages import Clone, Look, StepInput
    from aicirt.wasm.instance import Instance
    from aicirt.worker.scheduling import Work
    from aicirt.worker.waits import Waiting


#: all fields after `size`, up to the first token
_ARG = struct.Struct(STEP_ARG.packer("seq_id", "num_group").format + "I")
_WORD = struct.Struct("<I")
_ARG_SIZE, _SEQ_ID, _NUM_GROUP = STEP_ARG.size, STEP_ARG.offsets["seq_id"], STEP_ARG.offsets["num_group"]
_FLAGS = STEP_ARG.offsets["flags"]
_TOKENS, _GROUP = STEP_ARG.offsets["tokens"], STEP_ARG.offsets["group"]
# plain numbers: looking up a member of an Enum costs as much as calling a guest
_POST, _PRE = int(Export.POST), int(Export.PRE)


class Step(Protocol):
    """A step that waits for the mid_process of sequences (`aicirt.worker.steps.StepWork`)."""

    number: int
    deadline: float

    def finish(self, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Records the end of a mid_process that this step waits for."""

    def defer(self, seq: Sequence) -> None:
        """Reports a sequence as late."""

    def stop_waiting(self, seq: Sequence) -> None:
        """Stops waiting for a sequence that has ended or waits in a later step."""

    def due(self, ready: bool) -> None:
        """Shortens the deadline, because the engine has nothing left to do."""

    def expire(self) -> None:
        """Reports all sequences without a result as late when the deadline has passed."""


class Sequence:
    """The state of a live sequence in this worker."""

    __slots__ = (
        "_has_post",
        "_has_pre",
        "_refill_ns",
        "_saved_ns",
        "allowance_ns",
        "arg_address",
        "by_engine",
        "changed",
        "context",
        "copies",
        "critical_ns",
        "deferred",
        "empty_splices",
        "final",
        "flags",
        "has_critical",
        "has_group",
        "id",
        "instance",
        "last_row",
        "late_steps",
        "length",
        "look",
        "mid",
        "outcome",
        "request",
        "step",
        "waiting",
        "waits_in",
    )

    def __init__(self, number: int, instance: Instance, context: GuestContext) -> None:
        """`context` must have a request, and the address of the guest's aici_step_arg."""
        request = context.request
        assert request is not None
        self.id = number
        self.instance = instance
        self.context = context
        self.request = request
        self.arg_address = arg_address = context.arg_address
        #: number of tokens, the prompt included
        self.length = len(context.sources[PROMPT]) // 4
        self.step = 0
        #: tokens were added or removed since the last step
        self.changed = False
        #: number (-1: none) and generation of the last row that the client got, to which AICI_ROW_SAME refers
        self.last_row: tuple[int, int] | None = None
        #: a mid_process call in progress, perhaps of an earlier step
        self.mid: Work | None = None
        #: copies to make as soon as init_prompt has ended; None when it does not run
        self.copies: list[Clone] | None = None
        #: result or error of a late mid_process, until the next step reads it
        self.outcome: tuple[int | None, Exception | None] | None = None
        self.late_steps = 0
        #: AICI_MID_* of the last mid_process, until the next step begins
        self.flags = 0
        #: consecutive results that changed nothing, since tokens were added or removed
        self.empty_splices = 0
        #: mid_process has asked for the distribution of the next token: returns the row for its logits
        self.look: Callable[[], memoryview] | None = None
        #: the engine made the sequence as a clone, not its controller as a fork
        self.by_engine = False
        #: the engine has ended the sequence: its results are ignored
        self.final = False
        #: the step that waits for mid_process
        self.waits_in: Step | None = None
        #: what it waits for since pre_process has suspended it
        self.waiting: Waiting | None = None
        has = instance.program.has
        self._has_pre, self._has_post = has[_PRE], has[_POST]
        #: whether `critical` calls anything
        self.has_critical = self._has_pre or self._has_post
        #: CPU time (ns) for pre_process and post_process: added per step, most that is saved, and left
        self._refill_ns, self._saved_ns = instance.program.critical_ns
        self.allowance_ns = self._saved_ns
        #: CPU time (ns) of both in the current step, as far as it was measured
        self.critical_ns = 0
        #: the owner had used its share of the last step: the input is delivered, but post_process and
        #: pre_process have not been called yet
        self.deferred = False
        context.bind(instance)
        instance.clock_ns = None
        context.group = [number]
        #: the fork group that mid_process sees consists of more than this sequence
        self.has_group = False
        if request.owner is not None:
            request.owner.add_sequence()
        _WORD.pack_into(instance.view, arg_address + _SEQ_ID, number)
        _WORD.pack_into(instance.view, arg_address + _GROUP, number)

    def deliver(self, op: StepInput) -> None:
        """Writes a step's input into the guest's step argument, unless an earlier step has done so.

        `op` comes unchecked from the client: invalid fields raise TypeError, ValueError, LookupError,
        OverflowError or struct.error. Raises ResultError if `op` backtracks more tokens than there are.
        """
        if self.deferred:
            self.deferred = False
            return
        _, tokens, backtrack, sampled, logprob, mass, top, _ = op
        count = len(tokens)
        if backtrack > self.length:
            raise ResultError(f"a step removes {backtrack} of the sequence's {counted(self.length, 'token')}")
        self.length += count - backtrack
        self.changed = count > 0 or backtrack > 0
        self.instance.clock_ns = None
        self.step = step = self.step + 1
        self.context.tokens = tokens
        _ARG.pack_into(
            self.instance.view,
            self.arg_address + 4,
            self.id,
            step,
            (ARG_SAMPLED if sampled else 0) | (ARG_HAS_LOGPROB if logprob == logprob else 0),
            backtrack,
            count,
            logprob,
            mass,
            len(top) if top else 0,
            1,
            tokens[0] if count else 0,
        )
        if top is not None:
            self._report_likely(top)
        if count > 1:
            inline = array("I", tokens[1:INLINE_TOKENS]).tobytes()
            start = self.arg_address + _TOKENS + 4
            self.instance.view[start : start + len(inline)] = inline
        if self.has_group:
            self.set_group([self.id])

    def _report_likely(self, top: list[tuple[int, float]]) -> None:
        """Gives the guest the most likely tokens, and what it has looked for."""
        context = self.context
        context.sources[TOP] = b"".join(struct.pack("<If", token, value) for token, value in top)
        if self.look is not None and not self.changed:
            context.logits, self.look = self.look, None
            self.instance.view[self.arg_address + _FLAGS] |= ARG_LOOKED

    @property
    def follows(self) -> bool:
        """Whether it follows another sequence until that ends: it waits for nothing else."""
        return self.waiting is not None and not self.waiting.conditions and self.waiting.until is None

    def touch(self) -> None:
        """Brings the data of `deliver` and `critical` into the processor's caches; changes nothing."""
        if self._has_pre or self._has_post:
            self.instance.touch(self.arg_address)

    def set_group(self, group: list[int]) -> None:
        """Sets the fork group that mid_process sees."""
        self.context.group = group
        self.has_group = len(group) > 1
        view, address = self.instance.view, self.arg_address
        _WORD.pack_into(view, address + _NUM_GROUP, len(group))
        inline = array("I", group[:INLINE_GROUP]).tobytes()
        view[address + _GROUP : address + _GROUP + len(inline)] = inline

    def _time_allowed(self) -> str:
        limits = self.instance.engine.limits
        return (
            f"each step adds {limits.pre_ms:g} ms for aici_pre_process and {limits.post_ms:g} ms for "
            f"aici_post_process, and a sequence saves up to {self._saved_ns / 1e6:g} ms (pre_ms, post_ms, "
            "critical_saved_ms)"
        )

    def critical(self) -> tuple[int, int]:
        """Runs post_process (if tokens were added or removed) and pre_process, unless `flags` skip them.

        Returns the verb with a number: of forks; or with SUSPEND 1 if the sequence waits for something, in
        `waiting`. Raises any ControllerError.
        """
        instance, flags = self.instance, self.flags
        self.flags = self.critical_ns = 0
        left = self.allowance_ns + self._refill_ns
        if left > self._saved_ns:
            left = self._saved_ns
        self.allowance_ns = left
        called = self.changed and self._has_post and not flags & MID_SKIP_POST
        try:
            if called:
                verb = read_post(instance, instance.call(_POST, 0, left))
                if instance.used_ns:
                    self.critical_ns = instance.used_ns
                    left -= instance.used_ns
                if verb == STOP:
                    return STOP, 0
            if not self._has_pre:
                return CONTINUE, 1
            if flags & MID_SKIP_PRE:
                self.request.suspended_rounds = 0
                return CONTINUE, 1
            verb, count = read_pre(instance, address := instance.call(_PRE, 0, left, right_after=called))
            if instance.used_ns:
                self.critical_ns += instance.used_ns
        except GuestExit:
            return STOP, 0
        except TimeLimitError as error:
            self.critical_ns += instance.used_ns
            raise TimeLimitError(f"{error.message}: {self._time_allowed()}", **error.detail) from None
        if verb == SUSPEND:
            if not self.context.capabilities.get(CAP_SUSPEND, 0):
                raise CapabilityError("this engine cannot suspend sequences (AICI_CAP_SUSPEND)")
            waiting = read_waiting(instance, address, self.request.limits)
            return verb, int(waiting is not None and self.request.waits.park(self, waiting))
        self.request.suspended_rounds = 0  # not every sequence of the request is suspended in this round
        if verb == FORK:
            self._check_fork(count)
        return verb, count

    def conclude(self) -> bool:
        """Runs post_process for the last time; returns False if mid_process must run instead.

        Raises any ControllerError.
        """
        self.final = True
        flags, self.flags = self.flags, 0
        if not self._has_post or flags & MID_SKIP_POST:
            return not self.changed
        try:
            if self.changed:
                read_post(self.instance, self.instance.call(_POST))
        except GuestExit:
            pass
        return True

    def count_idle(self, result: Splice | Look) -> None:
        """Counts a result that changes nothing, with which a sequence may wait or look, but not forever.

        Raises LivelockError beyond the limit.
        """
        if isinstance(result, Splice) and (result.backtrack or result.ff_tokens):
            return
        self.empty_splices = 1 if self.changed else self.empty_splices + 1
        limit = self.request.limits.max_idle_steps
        if self.empty_splices > limit:
            raise LivelockError(
                f"mid_process changed nothing for {limit} rounds in which no token was added or removed",
                limit=limit,
            )

    def child(self, number: int, instance: Instance) -> Sequence:
        """Makes a sequence that continues from the state of this one, in the same request."""
        child = Sequence(number, instance, self.context.fork(instance.seed))
        child.length, child.step, child.last_row = self.length, self.step, self.last_row
        child.changed, child.deferred = self.changed, self.deferred
        child.empty_splices, child.flags = self.empty_splices, self.flags
        child.allowance_ns = self.allowance_ns  # not the allowance of a new sequence
        self.request.live += 1
        return child

    def fail(self, error: AiciError) -> list[Any]:
        """Returns the error in wire form for the client, with the guest's output."""
        if self.context.log.waiting:
            error.detail.setdefault("log", self.context.log.take_text())
        return error.to_wire()

    def end(self, error: AiciError) -> None:
        """Ends the sequence between two calls, also during a call in slices.

        Frees its memory at once. The client receives the error with the next result of the sequence. One that
        waits is woken for it.
        """
        if self.mid is not None:
            self.mid.fail(error)
        else:
            self.outcome = (None, error)
        self.instance.close()
        self.request.waits.wake(self)
        self.context.sources = [b""] * len(self.context.sources)

    def leave(self) -> None:
        """Cancels a call in progress and leaves the request and the owner; the instance stays."""
        if self.mid is not None:
            self.mid.cancel()
            self.mid = None
        self.context.log.clear()
        self.request.waits.end(self)
        if self.request.owner is not None:
            self.request.owner.remove_sequence()
        self.request.left(self.by_engine)

    def _check_fork(self, forks: int) -> None:
        if not self.context.capabilities.get(CAP_FORK, 0):
            raise CapabilityError("this engine cannot fork (AICI_CAP_FORK)")
        request = self.request
        allowed = request.limits.max_forks + request.clones
        if request.live + forks - 1 > allowed:
            raise ForkLimitError(
                f"a fork into {forks} would make {request.live + forks - 1} live sequences of this request; "
                f"the limit is {allowed}",
                limit=allowed,
            )
        if request.forked + forks - 1 > request.limits.max_total_forks:
            raise ForkLimitError(
                f"the request has forked {request.forked} times; the limit is "
                f"{request.limits.max_total_forks} in all (max_total_forks)",
                limit=request.limits.max_total_forks,
            )


def check_arg_address(address: int, size: int) -> None:
    """Raises ProtocolError if a memory of `size` bytes has no room for an aici_step_arg there."""
    if not 0 < address <= size - _ARG_SIZE:
        raise ProtocolError(f"an aici_step_arg at {address} does not fit in a memory of {size} bytes")


def check_arg(instance: Instance, address: int) -> None:
    """Raises ResultError if the guest's aici_step_arg is outside its memory or too small."""
    check_span(instance, address, _ARG_SIZE, "aici_step_arg")
    (size,) = _WORD.unpack_from(instance.view, address)
    if size < _ARG_SIZE:
        raise ResultError(f"aici_step_arg: size is {size}, but version 1 has {_ARG_SIZE} bytes")
