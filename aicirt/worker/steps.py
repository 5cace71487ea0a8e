"""Steps of a client in this worker: from the request to its two answers."""

from __future__ import annotations

import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import CONTINUE, ERROR, EXPORTS, FORK, LATE, STOP, SUSPEND, Export
from aicirt.contract.errors import (
    AiciError,
    ProtocolError,
    RuntimeFailure,
    TimeLimitError,
    UnknownSequenceError,
)
from aicirt.contract.messages import (
    INPUT_FINAL,
    INPUT_SEQ,
    MID,
    PRE,
    RESULT_VERB,
    VERDICT_SEQ,
    VERDICT_VERB,
    Bare,
    Mid,
    Pre,
    StepInput,
    StepRequest,
)
from aicirt.settings import MOST_LAST_BYTES, MOST_REPORTED_BYTES
from aicirt.wasm.fiber import Fiber, begin
from aicirt.wasm.host import GuestExit
from aicirt.worker.hostapi import GuestContext
from aicirt.worker.memory import LOOK_SECONDS
from aicirt.worker.owners import LOOKED_AT_NS, StepShares, used_time
from aicirt.worker.scheduling import Work
from aicirt.worker.sequence import Sequence

if TYPE_CHECKING:
    from aicirt.worker.client import Client
    from aicirt.worker.loop import Worker
    from aicirt.worker.owners import Request, Variables

_MID = int(Export.MID)
_MID_NAME = EXPORTS[Export.MID][0]
_LOOK_NS = int(LOOK_SECONDS * 1e9)
#: multiple of `step_grace_ms` for a worker without results, which may not have had a core yet
_WITHOUT_RESULTS = 10

#: what `Sequence.deliver` raises for invalid tokens or numbers
_NO_INPUT = (TypeError, ValueError, LookupError, OverflowError, struct.error)


class StepWork:
    """Collects the results of a step, and sends them when all have arrived or at the deadline."""

    __slots__ = (
        "_client",
        "_due",
        "_flags",
        "_going",
        "_grace",
        "_late_already",
        "_logs",
        "_pressed",
        "_reported",
        "_reported_bytes",
        "_request",
        "_results",
        "_waiting",
        "_worker",
        "deadline",
        "number",
    )

    def __init__(self, worker: Worker, client: Client, request: StepRequest) -> None:
        self._client = client
        self._worker = worker
        self.number = request.step
        self._results: list[Any] = []
        self._logs: list[list[Any]] = []
        self._flags: list[list[int]] = []
        #: reported variables of requests: a sequence of the request, and [name, version, value] by name
        self._reported: dict[Variables, tuple[int, dict[bytes, list[Any]]]] = {}
        self._reported_bytes = 0
        self._request = request
        #: sequences whose mid_process has not ended
        self._waiting: dict[int, Sequence] = {}
        #: those whose mid_process continues from an earlier step: they get no extra time once the step is due
        self._late_already: list[Sequence] = []
        self.deadline = 0.0
        #: the engine has nothing left to do but wait for the results
        self._due = False
        #: a client has sent a message: calls that have not begun wait for their turn on the agenda
        self._pressed = False
        self._grace = 0.0
        #: sequences that take part in mid_process
        self._going: list[Sequence] = []

    def run(self) -> None:
        """Runs the critical part and begins every mid_process; sends the results if all have arrived.

        Raises ProtocolError, TypeError, ValueError or struct.error if the message is not a valid step.
        """
        client, request = self._client, self._request
        client.stepped = self._going = self._critical()
        client.rows.give_back(request.released_rows)
        client.dense.give_back(request.released_dense)
        self._begin_mids(self._going)
        if self._waiting:
            client.steps.append(self)
            limits = next(iter(self._waiting.values())).request.limits
            self.deadline = time.monotonic() + limits.step_deadline_ms / 1000
            self._grace = limits.step_grace_ms / 1000
        else:
            self._send()

    # -- critical part ---------------------------------------------------------------------------

    def _critical(self) -> list[Sequence]:
        """Runs post_process and pre_process of all sequences, sends the first answer, then makes the forks.

        Returns the sequences that take part in mid_process.
        """
        sequences = self._client.sequences
        verdicts: list[list[Any]] = []
        going: list[Sequence] = []
        forks: list[tuple[Sequence, list[int]]] = []
        suspended: list[Sequence] = []
        worker, client = self._worker, self._client
        memory, owners = worker.memory, worker.owners
        shares = StepShares(owners, worker.settings.owner_critical_ms, worker.limits.step_deadline_ms)
        shared, over_at, clock = shares.shared, shares.over_at, time.monotonic_ns
        owing = shared or bool(owners.in_debt)  # debts fall in all steps
        if owing:
            shares.take_debts(owners)
        inputs = self._request.inputs
        if client.put_off:  # these come first, in the same order
            places = {number: place for place, number in enumerate(client.put_off)}
            inputs = sorted(inputs, key=lambda op: places.get(op[INPUT_SEQ], len(places)))
            client.put_off = []
        at = look_at = clock()
        for op in inputs:
            if at >= look_at:
                memory.look()
                at = clock()
                look_at = at + _LOOK_NS
            seq = sequences.get(op[INPUT_SEQ])
            if seq is None:
                error = UnknownSequenceError(f"this worker has no sequence {op[INPUT_SEQ]}")
                verdicts.append([op[INPUT_SEQ], ERROR, error.to_wire()])
                continue
            if op[INPUT_FINAL]:
                owner = seq.request.owner
                has_time = at < over_at and (not shared or shares.has_time(owner))
                if not self._concluded(seq, op, has_time):
                    going.append(seq)
                begun, at = at, clock()
                if shared:
                    shares.charge(owner, used_time(begun, at, seq.instance.used_ns))
                continue
            if seq.mid is not None or seq.outcome is not None:
                going.append(seq)  # a late mid_process: the sequence has no input since
                continue
            try:
                if not seq.put_off:  # else the input was delivered in an earlier step
                    seq.deliver(op)
                if not seq.has_critical:
                    seq.flags = 0
                    going.append(seq)
                    continue
                if at >= over_at or (shared and not shares.has_time(seq.request.owner)):
                    seq.put_off = True
                    client.put_off.append(seq.id)
                    client.counters["late"] += 1
                    self._results.append(Bare(seq.id, LATE))
                    continue
                seq.put_off = False
                try:
                    verb, count = seq.critical()
                finally:
                    begun, at = at, clock()
                    used = at - begun
                    if used >= LOOKED_AT_NS:
                        used = used_time(begun, at, seq.critical_ns)
                    # not below 0: on a busy machine the call may have seemed long
                    seq.allowance_ns = seq.allowance_ns - used if seq.allowance_ns > used else 0
                    if shared:
                        shares.charge(seq.request.owner, used)
            except AiciError as error:
                verdicts.append([seq.id, ERROR, self._end(seq, error)])
                continue
            except _NO_INPUT as error:
                problem = ProtocolError(f"the sequence has an invalid input: {error!r}")
                verdicts.append([seq.id, ERROR, self._end(seq, problem)])
                continue
            if verb == CONTINUE:
                going.append(seq)
            elif verb == STOP:
                verdicts.append([seq.id, STOP, None])
                self._end(seq, None)
            elif verb == SUSPEND:
                verdicts.append([seq.id, SUSPEND, None])
                suspended.append(seq)
            else:
                try:
                    self._check_fork(seq, count - 1, forks)
                except RuntimeFailure as error:
                    verdicts.append([seq.id, ERROR, self._end(seq, error)])
                    continue
                children = [self._client.new_child() for _ in range(count - 1)]
                seq.request.live += count - 1
                seq.request.forked += count - 1
                verdicts.append([seq.id, FORK, children])
                forks.append((seq, children))
                going.append(seq)
        if owing:
            shares.leave_debts(owners)
        if suspended:
            self._check_waiting(suspended, going, verdicts)
        if self._request.critical:
            self._client.send(Pre(PRE, self.number, verdicts))
        else:  # no first answer was requested: errors and stops come with the second
            self._results += [
                [seq, verb, payload] for seq, verb, payload in verdicts if verb in (STOP, ERROR)
            ]
        for seq, children in forks:
            going += self._fork(seq, children)
        return going

    def _check_fork(self, seq: Sequence, count: int, forks: list[tuple[Sequence, list[int]]]) -> None:
        """Raises as `Worker.check_room` does if `count` children beside those of `forks` do not fit."""
        owner = seq.request.owner
        own = sum(len(children) for parent, children in forks if parent.request.owner is owner)
        others = sum(len(children) for _, children in forks) - own
        self._worker.check_room(owner, count + own, others)

    def _concluded(self, seq: Sequence, op: StepInput, has_time: bool) -> bool:
        """Ends a sequence that the engine has ended; its controller gets the last input and may print.

        The controller is not called if it is late or its owner has used its share (not `has_time`). Returns
        False if mid_process must run before the end.
        """
        error: AiciError | None = None
        if has_time and seq.mid is None and seq.outcome is None and not seq.put_off:
            try:
                seq.deliver(op)
                if not seq.conclude():
                    return False
            except AiciError as problem:
                error = problem
        self._results.append(Bare(seq.id, STOP if error is None else ERROR, self._end(seq, error)))
        return True

    def _check_waiting(
        self, suspended: list[Sequence], going: list[Sequence], verdicts: list[list[Any]]
    ) -> None:
        """Ends suspended sequences that wait for something that can no longer happen."""
        by_request: dict[Request, list[Sequence]] = {}
        for seq in suspended:
            by_request.setdefault(seq.request, []).append(seq)
        active = [seq for seq in going if seq.request in by_request]
        for request, members in by_request.items():
            others = [seq for seq in active if seq.request is request]
            changed = any(seq.changed for seq in (*members, *others))
            error = request.round_over(len(members), len(others), changed)
            if error is None:
                continue
            for seq in members:
                verdict = next(v for v in verdicts if v[VERDICT_SEQ] == seq.id)
                verdict[VERDICT_VERB:] = [ERROR, self._end(seq, type(error)(error.message))]

    def _fork(self, parent: Sequence, children: list[int]) -> list[Sequence]:
        """Clones the parent and returns the children; the second answer reports children that failed."""
        parent.request.live -= len(children)  # children count once they exist
        made: list[Sequence] = []
        try:
            instances = self._worker.memory.fork(parent, len(children))
        except (AiciError, OSError, MemoryError) as error:
            problem = error if isinstance(error, AiciError) else RuntimeFailure(f"the fork failed: {error}")
            self._results += [Bare(child, ERROR, problem.to_wire()) for child in children]
            return made
        for number, instance in zip(children, instances, strict=True):
            child = make_child(parent, number, instance)
            self._client.sequences[number] = child
            made.append(child)
        self._client.counters["forks"] += len(made)
        group = [parent.id, *children]
        for seq in (parent, *made):
            seq.set_group(group)
        return made

    # -- mid_process -------------------------------------------------------------------------------

    def _begin_mids(self, seqs: list[Sequence]) -> None:
        """Begins every mid_process; calls of an owner that has used its share of first slices take turns."""
        worker = self._worker
        shares = StepShares(worker.owners, worker.settings.owner_critical_ms, worker.limits.step_deadline_ms)
        shared, over_at, clock = shares.shared, shares.over_at, time.monotonic_ns
        memory, engine, arrived = worker.memory, worker.engine, self._arrived
        # a call beyond its time for one step is late, which is allowed for some steps in a row
        limit_ns = int(engine.limits.mid_ms * (worker.limits.max_late_steps + 1) * 1e6)
        at = look_at = clock()
        for seq in seqs:
            if at >= look_at:
                memory.look()
                at = clock()
                look_at = at + _LOOK_NS
            if seq.outcome is not None:  # mid_process was late and has ended since
                value, error = seq.outcome
                seq.outcome = None
                self._ended(seq, value, error)
            elif seq.mid is not None:
                self._late_already.append(seq)
                self._wait_for(seq)
            else:
                try:
                    if self._pressed or at >= over_at or (shared and not shares.has_time(seq.request.owner)):
                        self._go_on(seq, Fiber(seq.instance, _MID, (), limit_ns / 1e6))
                    else:  # runs the first slice at once, as most calls need no other
                        call = begin(seq.instance, _MID, limit_ns)
                        if isinstance(call, int):
                            arrived(seq, call)
                        else:
                            self._pressed = engine.wanted()
                            self._go_on(seq, call)
                except Exception as error:
                    self._ended(seq, None, error)
            begun, at = at, clock()
            if shared:
                shares.charge(seq.request.owner, used_time(begun, at, seq.instance.used_ns))

    def _go_on(self, seq: Sequence, fiber: Fiber) -> None:
        """Leaves the rest of a mid_process to the agenda."""
        seq.mid = Work(seq.request.owner_name, fiber, partial(_finished, seq), partial(_sliced, seq))
        self._worker.agenda.add(seq.mid)
        self._wait_for(seq)

    def _wait_for(self, seq: Sequence) -> None:
        """Waits for the end of a mid_process in progress."""
        self._waiting[seq.id] = seq
        earlier, seq.waits_in = seq.waits_in, self
        if earlier is not None:  # the engine has abandoned that step: this one does not get its results
            earlier.leave(seq)

    def _arrived(self, seq: Sequence, address: int) -> None:
        """Records the result of a mid_process that has returned."""
        if seq.final:
            self._stopped(seq)
            return
        try:
            result = self._client.writer.read_mid(seq, address)
        except AiciError as error:
            self._ended(seq, None, error)
            return
        seq.late_steps = 0
        self._results.append(result)
        if seq.flags:
            self._flags.append([seq.id, seq.flags])
        if result[RESULT_VERB] == STOP:
            self._end(seq, None)
        elif seq.context.log.waiting:
            self._logs.append([seq.id, seq.context.log.take()])

    def _stopped(self, seq: Sequence) -> None:
        self._results.append(Bare(seq.id, STOP))
        self._end(seq, None)

    def _ended(self, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Records the result of a mid_process that has returned or failed."""
        if error is None:
            assert value is not None
            self._arrived(seq, value)
            return
        if isinstance(error, GuestExit):
            self._stopped(seq)
            return
        if isinstance(error, TimeLimitError) and error.detail.get("callback") == _MID_NAME:
            error = TimeLimitError(f"{error.message}: {_time_allowed(seq)}", **error.detail)
        failure = error if isinstance(error, AiciError) else RuntimeFailure(f"mid_process failed: {error!r}")
        self._results.append(Bare(seq.id, ERROR, self._end(seq, failure)))

    def finish(self, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Records the end of a mid_process that this step waits for."""
        del self._waiting[seq.id]
        seq.waits_in = None
        first = not self._results
        self._ended(seq, value, error)
        if self._due and first:
            self._hurry()
        self._send_if_done()

    def put_off(self, seq: Sequence) -> None:
        """Reports a sequence as late whose aici_init_prompt has ended during the step."""
        self._late(seq)
        self._send_if_done()

    def due(self, ready: bool) -> None:
        """Shortens the deadline, because the engine has nothing left to do.

        Once the engine has results, it waits only briefly for others. `ready`: it has results from other
        workers.
        """
        self._due = True
        if ready or self._results:
            self._hurry(1 if self._results else _WITHOUT_RESULTS)
            self._send_if_done()

    def _hurry(self, times: int = 1) -> None:
        for seq in self._late_already:
            if seq.waits_in is self:
                self._late(seq)
        if self._waiting:
            grace = times * self._grace
            self.deadline = min(self.deadline, time.monotonic() + grace)
            self._worker.ticker.hasten(grace)

    def _late(self, seq: Sequence) -> None:
        """Reports the sequence as late."""
        del self._waiting[seq.id]
        seq.waits_in = None
        if seq.final:
            self._results.append(Bare(seq.id, STOP))
            self._end(seq, None)
            return
        self._client.counters["late"] += 1
        self._results.append(Bare(seq.id, LATE))

    # -- answers --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Reports all sequences without a result as late when the deadline has passed."""
        for seq in list(self._waiting.values()):
            self._late(seq)
        self._send_if_done()

    def leave(self, seq: Sequence) -> None:
        """Stops waiting for a sequence that has ended or waits in a later step."""
        if self._waiting.pop(seq.id, None) is not None:
            self._send_if_done()

    def _send_if_done(self) -> None:
        if not self._waiting and self in self._client.steps:
            self._client.steps.remove(self)
            self._send()

    def _send(self) -> None:
        variables: list[list[Any]] = []
        if self._reported or self._client.written:
            variables = self._variables()
        self._client.send(Mid(MID, self.number, self._results, self._logs, variables, self._flags))

    def _variables(self) -> list[list[Any]]:
        """Returns the unreported variables of requests that took part in the step."""
        client = self._client
        took_part = [client.sequences.get(op[INPUT_SEQ]) for op in self._request.inputs]
        by_request = {seq.request.variables: seq.id for seq in (*took_part, *self._going) if seq is not None}
        for variables in list(client.written):
            if variables in by_request:
                if self._reported_bytes > MOST_REPORTED_BYTES:
                    break  # the rest is reported with the next step, before others
                self._report(by_request[variables], variables)
        return [[seq, list(values.values())] for seq, values in self._reported.values()]

    def _report(self, seq: int, variables: Variables) -> None:
        _, reported = self._reported.setdefault(variables, (seq, {}))
        for entry in variables.take_unreported():
            name, _, value = entry
            reported[name] = entry
            self._reported_bytes += len(name) + len(value)

    def _end(self, seq: Sequence, error: AiciError | None) -> list[Any] | None:
        """Frees the sequence; returns the error in wire form.

        Adds its last output to the logs and to the error, and reports its request's unreported variables.
        """
        if error is not None:
            self._client.counters[error.code] += 1
        if seq.context.log.waiting:
            text = seq.context.log.take()
            self._logs.append([seq.id, text])
            if error is not None:
                error.detail.setdefault("log", text)
        variables = seq.request.variables
        if variables in self._client.written:  # the request may end with the sequence
            if self._reported_bytes <= MOST_LAST_BYTES:
                self._report(seq.id, variables)
            elif seq.request.live == 1:
                self._client.counters["variables_untold"] += 1
        waiting, seq.waits_in = seq.waits_in, None
        self._client.drop(seq, self._worker.findings if error is None else None)
        if waiting is not None:  # an earlier step, which need not wait until its deadline
            waiting.leave(seq)
        return None if error is None else error.to_wire()


def _finished(seq: Sequence, value: int | None, error: Exception | None) -> None:
    """Handles the end of a mid_process, in the step that waits for it or (late) between two steps."""
    seq.mid = None
    step = seq.waits_in
    if step is None:
        seq.outcome = (value, error)
    else:
        step.finish(seq, value, error)


def _sliced(seq: Sequence) -> None:
    """Reports a running mid_process as late once it has used its time for this step.

    In the last step that it may use, it ends with `TimeLimitError` instead.
    """
    step, limits = seq.waits_in, seq.instance.engine.limits
    if (
        step is not None
        and seq.mid is not None
        and seq.late_steps < seq.request.limits.max_late_steps
        and seq.instance.used_ns >= 1e6 * limits.mid_ms * (seq.late_steps + 1)
    ):
        seq.late_steps += 1
        step._late(seq)
        step._send_if_done()


def _time_allowed(seq: Sequence) -> str:
    """Describes the time that a mid_process may use, for an error message."""
    each, late = seq.instance.engine.limits.mid_ms, seq.request.limits.max_late_steps
    return f"it has {each:g} ms per step, and may be late in {late} steps in a row (mid_ms, max_late_steps)"


def make_child(parent: Sequence, number: int, instance: Any) -> Sequence:
    """Makes a sequence that continues from its parent's state, in the same request."""
    old, request = parent.context, parent.request
    context = GuestContext(
        vocabulary=old.vocabulary,
        capabilities=old.capabilities,
        limits=old.limits,
        arg=b"",
        variables=request.variables,
        seed=instance.seed,
        owner=request.owner,
    )
    context.sources = list(old.sources)
    child = Sequence(number, instance, context, request, parent.arg_address)
    child.length, child.step, child.last_row = parent.length, parent.step, parent.last_row
    child.tokens, child.changed = parent.tokens, parent.changed
    child.empty_splices, child.flags = parent.empty_splices, parent.flags
    child.put_off = parent.put_off
    child.allowance_ns = parent.allowance_ns  # not the allowance of a new sequence
    request.live += 1
    return child
