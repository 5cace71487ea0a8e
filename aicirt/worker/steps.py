"""Steps of a client in this worker: from the request to its two answers."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import CONTINUE, ERROR, EXPORTS, FORK, LATE, MID_DRAFTS, STOP, SUSPEND, Export
from aicirt.contract.errors import (
    AiciError,
    ProtocolError,
    ResultError,
    RuntimeFailure,
    TimeLimitError,
    UnknownSequenceError,
)
from aicirt.contract.messages import (
    INPUT_BACKTRACK,
    INPUT_FINAL,
    INPUT_SEQ,
    INPUT_TOKENS,
    MID,
    PRE,
    RESULT_VERB,
    VERDICT_SEQ,
    VERDICT_VERB,
    Bare,
    Follow,
    Look,
    Mid,
    Pre,
    Splice,
    StepInput,
    StepRequest,
)
from aicirt.settings import MAX_LAST_BYTES, MAX_REPORTED_BYTES
from aicirt.wasm.fiber import Fiber, begin
from aicirt.wasm.host import GuestExit
from aicirt.worker.memory import LOOK_SECONDS
from aicirt.worker.scheduling import LOOKED_AT_NS, StepShares, Work, used_time
from aicirt.worker.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aicirt.settings import RequestLimits, WorkerSettings
    from aicirt.wasm.engine import WasmEngine
    from aicirt.wasm.fiber import Ticker
    from aicirt.worker.client import Client
    from aicirt.worker.memory import GuestMemory
    from aicirt.worker.owners import Owners, RequestState, Variables
    from aicirt.worker.scheduling import Agenda
    from aicirt.worker.templates import Profiles
    from aicirt.worker.waits import Waits

_MID = int(Export.MID)
_MID_NAME = EXPORTS[Export.MID][0]
_LOOK_NS = int(LOOK_SECONDS * 1e9)
#: multiple of `step_grace_ms` for a worker without results, which may not have had a core yet
_WITHOUT_RESULTS = 10

#: results that may change nothing in this step
_IDLE = (Splice, Look, Follow)

#: what `Sequence.critical` raises, and `Sequence.deliver` for invalid tokens or numbers
_FAILURES = (AiciError, TypeError, ValueError, LookupError, OverflowError, struct.error)


@dataclass(frozen=True, slots=True)
class Resources:
    """Objects that all steps of a worker use."""

    settings: WorkerSettings
    limits: RequestLimits
    engine: WasmEngine
    ticker: Ticker
    agenda: Agenda
    owners: Owners
    memory: GuestMemory
    profiles: Profiles
    waits: Waits


class StepWork:
    """Collects the results of a step, and sends them when all have arrived or at the deadline."""

    __slots__ = (
        "_client",
        "_due",
        "_flags",
        "_forks",
        "_going",
        "_grace",
        "_late_already",
        "_logs",
        "_read_mid",
        "_reported",
        "_reported_bytes",
        "_request",
        "_resources",
        "_results",
        "_suspended",
        "_verdicts",
        "_waiting",
        "deadline",
        "number",
    )

    def __init__(self, resources: Resources, client: Client, request: StepRequest) -> None:
        self._client = client
        self._read_mid = client.writer.read_mid
        self._resources = resources
        self.number = request.step
        self._results: list[Any] = []
        self._logs: list[list[Any]] = []
        self._flags: list[list[Any]] = []
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
        self._grace = 0.0
        #: [sequence, verb, payload] of the first answer
        self._verdicts: list[list[Any]] = []
        #: sequences that have forked, with the numbers of their children
        self._forks: list[tuple[Sequence, list[int]]] = []
        self._suspended: list[Sequence] = []
        #: sequences that take part in mid_process
        self._going: list[Sequence] = []

    def run(self) -> None:
        """Runs the critical part and begins every mid_process; sends the results if all have arrived.

        Raises ProtocolError, TypeError, ValueError or struct.error if the message is not a valid step.
        """
        client, request = self._client, self._request
        self._call_in_turn()
        if self._suspended:
            self._end_stuck()
        self._send_verdicts()
        if self._forks:
            self._make_forks()
        client.stepped = self._going
        client.rows.give_back(request.released_rows)
        client.dense.give_back(request.released_dense)
        self._begin_mids()
        if self._waiting:
            client.steps.append(self)
            limits = next(iter(self._waiting.values())).request.limits
            self.deadline = time.monotonic() + limits.step_deadline_ms / 1000
            self._grace = limits.step_grace_ms / 1000
        else:
            self._send()

    # -- critical part ---------------------------------------------------------------------------

    def _call_in_turn(self) -> None:
        """Delivers all inputs, and runs post_process and pre_process of owners that have time left."""
        resources, sequences, going = self._resources, self._client.sequences, self._going
        memory, owners, clock = resources.memory, resources.owners, time.monotonic_ns
        shares = StepShares(owners, resources.settings.owner_critical_ms, resources.limits.step_deadline_ms)
        shared, over_at = shares.shared, shares.over_at
        if owners.in_debt:  # debts fall in all steps
            shares.take_debts(owners)
        at = look_at = clock()
        for op in self._in_order():
            if at >= look_at:
                memory.look()
                at = clock()
                look_at = at + _LOOK_NS
            seq = sequences.get(op[INPUT_SEQ])
            if seq is None:
                self._refuse(op)
                continue
            if op[INPUT_FINAL]:
                at = self._conclude(seq, op, shares, at)
                continue
            if seq.waiting is not None and not self._interrupts(op):
                self._verdicts.append([seq.id, SUSPEND, 1])
                continue
            if seq.mid is not None or seq.outcome is not None:
                going.append(seq)  # a late mid_process: the sequence has no input since
                continue
            try:
                seq.deliver(op)
                if not seq.has_critical:
                    seq.flags = 0
                    going.append(seq)
                    continue
                if at >= over_at or (shared and not shares.has_time(seq.request.owner)):
                    self._defer(seq)
                    continue
                try:
                    verb, count = seq.critical()
                finally:
                    now = clock()
                    used = now - at
                    if used >= LOOKED_AT_NS:
                        used = used_time(at, now, seq.critical_ns)
                    at = now
                    # not below 0: on a busy machine the call may have seemed long
                    seq.allowance_ns = seq.allowance_ns - used if seq.allowance_ns > used else 0
                    if shared:
                        shares.charge(seq.request.owner, used)
                if verb == CONTINUE:
                    going.append(seq)
                else:
                    self._follow(seq, verb, count)
            except _FAILURES as error:
                self._fail(seq, error)
        if shared or owners.in_debt:
            shares.leave_debts(owners)

    def _interrupts(self, op: StepInput) -> bool:
        """Ends the wait of a sequence that the engine has changed; returns whether it has."""
        seq, changed = self._client.sequences[op[INPUT_SEQ]], bool(op[INPUT_TOKENS] or op[INPUT_BACKTRACK])
        if changed:
            self._resources.waits.end(seq)
        return changed

    def _in_order(self) -> Iterable[StepInput]:
        """Returns the inputs; those of sequences that were deferred come first, in the same order."""
        inputs, first = self._request.inputs, self._client.deferred
        if not first:
            return inputs
        self._client.deferred = []
        places = {number: place for place, number in enumerate(first)}
        return sorted(inputs, key=lambda op: places.get(op[INPUT_SEQ], len(places)))

    def _refuse(self, op: StepInput) -> None:
        error = UnknownSequenceError(f"this worker has no sequence {op[INPUT_SEQ]}")
        self._verdicts.append([op[INPUT_SEQ], ERROR, error.to_wire()])

    def _conclude(self, seq: Sequence, op: StepInput, shares: StepShares, at: int) -> int:
        """Ends a sequence that the engine has ended; its controller gets the last input and may print.

        The controller is not called if it is late or its owner has used its share. The end waits for
        mid_process if that must run before. Returns `time.monotonic_ns`, which was `at` before the call.
        """
        owner, over, error = seq.request.owner, True, None
        has_time = at < shares.over_at and (not shares.shared or shares.has_time(owner))
        if has_time and seq.mid is None and seq.outcome is None and not seq.deferred:
            try:
                seq.deliver(op)
                over = seq.conclude()
            except AiciError as problem:
                error = problem
        if over:
            self._results.append(
                Bare(seq.id, STOP if error is None else ERROR, self._end_sequence(seq, error))
            )
        else:
            self._going.append(seq)
        now = time.monotonic_ns()
        if shares.shared:
            shares.charge(owner, used_time(at, now, seq.instance.used_ns))
        return now

    def _defer(self, seq: Sequence) -> None:
        """Leaves the callbacks of a sequence, whose input was delivered, to the next step."""
        seq.deferred = True
        self._client.deferred.append(seq.id)
        self._client.counters["late"] += 1
        self._results.append(Bare(seq.id, LATE))

    def _fail(self, seq: Sequence, error: Exception) -> None:
        """Ends a sequence whose input is invalid, or whose callback has failed."""
        if not isinstance(error, AiciError):
            error = ProtocolError(f"the sequence has an invalid input: {error!r}")
        self._verdicts.append([seq.id, ERROR, self._end_sequence(seq, error)])

    def _follow(self, seq: Sequence, verb: int, count: int) -> None:
        """Carries out another verb of a controller than CONTINUE. Raises as `Owners.check_room` does."""
        if verb == FORK:
            self._plan_fork(seq, count - 1)
            return
        self._verdicts.append([seq.id, verb, None])
        if verb == SUSPEND:
            if seq.waiting is None:
                self._suspended.append(seq)
            else:
                self._verdicts[-1][-1] = 1
        else:
            self._end_sequence(seq, None)

    def _plan_fork(self, seq: Sequence, count: int) -> None:
        """Announces `count` children, if they fit beside all others of this step."""
        owner = seq.request.owner
        own = sum(len(children) for parent, children in self._forks if parent.request.owner is owner)
        others = sum(len(children) for _, children in self._forks) - own
        self._resources.owners.check_room(owner, count + own, others)
        children = [self._client.new_child() for _ in range(count)]
        seq.request.live += count
        seq.request.forked += count
        self._verdicts.append([seq.id, FORK, children])
        self._forks.append((seq, children))
        self._going.append(seq)

    def _end_stuck(self) -> None:
        """Ends suspended sequences that wait for something that can no longer happen."""
        by_request: dict[RequestState, list[Sequence]] = {}
        for seq in self._suspended:
            by_request.setdefault(seq.request, []).append(seq)
        for request, members in by_request.items():
            others = [seq for seq in self._going if seq.request is request]
            changed = any(seq.changed for seq in (*members, *others))
            error = request.round_over(len(members), len(others), changed)
            if error is None:
                continue
            for seq in members:
                verdict = next(v for v in self._verdicts if v[VERDICT_SEQ] == seq.id)
                verdict[VERDICT_VERB:] = [ERROR, self._end_sequence(seq, type(error)(error.message))]

    def _send_verdicts(self) -> None:
        """Sends the first answer; if none was requested, errors and stops come with the second."""
        if self._request.critical:
            self._client.send(Pre(PRE, self.number, self._verdicts))
        else:
            self._results += [verdict for verdict in self._verdicts if verdict[VERDICT_VERB] in (STOP, ERROR)]

    def _make_forks(self) -> None:
        """Clones parents, now that the engine can begin; the second answer reports children that failed."""
        for parent, children in self._forks:
            parent.request.live -= len(children)  # children count once they exist
            try:
                instances = self._resources.memory.fork(parent, len(children))
            except (AiciError, OSError, MemoryError) as error:
                problem = (
                    error if isinstance(error, AiciError) else RuntimeFailure(f"the fork failed: {error}")
                )
                self._results += [Bare(child, ERROR, problem.to_wire()) for child in children]
                continue
            made = list(map(parent.child, children, instances))
            self._client.sequences.update(zip(children, made, strict=True))
            self._client.counters["forks"] += len(made)
            group = [parent.id, *children]
            for seq in (parent, *made):
                seq.set_group(group)
            self._going += made

    # -- mid_process -------------------------------------------------------------------------------

    def _begin_mids(self) -> None:
        """Begins every mid_process; calls of an owner that has used its share of first slices take turns."""
        resources = self._resources
        memory, engine, arrived = resources.memory, resources.engine, self._arrived
        settings, limits = resources.settings, resources.limits
        shares = StepShares(resources.owners, settings.owner_critical_ms, limits.step_deadline_ms)
        shared, over_at, clock = shares.shared, shares.over_at, time.monotonic_ns
        # a call beyond its time for one step is late, which is allowed for some steps in a row
        limit_ns = int(engine.limits.mid_ms * (limits.max_late_steps + 1) * 1e6)
        at = look_at = clock()
        for seq in self._going:
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
                    if at >= over_at or (shared and not shares.has_time(seq.request.owner)):
                        self._go_on(seq, Fiber(seq.instance, _MID, (), limit_ns / 1e6))
                    else:  # runs the first slice at once, as most calls need no other
                        call = begin(seq.instance, _MID, limit_ns)
                        if isinstance(call, int):
                            arrived(seq, call)
                        else:
                            self._go_on(seq, call)
                            if engine.wanted():  # calls that have not begun wait for their turn
                                over_at = at
                except Exception as error:
                    self._ended(seq, None, error)
            now = clock()
            if shared:
                shares.charge(seq.request.owner, used_time(at, now, seq.instance.used_ns))
            at = now

    def _go_on(self, seq: Sequence, fiber: Fiber) -> None:
        """Leaves the rest of a mid_process to the agenda."""
        seq.mid = Work(seq.request.owner_name, fiber, partial(_finished, seq), partial(_sliced, seq))
        self._resources.agenda.add(seq.mid)
        self._wait_for(seq)

    def _wait_for(self, seq: Sequence) -> None:
        """Waits for the end of a mid_process in progress."""
        self._waiting[seq.id] = seq
        earlier, seq.waits_in = seq.waits_in, self
        if earlier is not None:  # the engine has abandoned that step: this one does not get its results
            earlier.stop_waiting(seq)

    def _arrived(self, seq: Sequence, address: int) -> None:
        """Records the result of a mid_process that has returned."""
        if seq.final:
            self._stopped(seq)
            return
        self._client.writer.owner = seq.request.owner
        try:
            result, seq.flags, seq.last_row = self._read_mid(
                seq.instance, address, seq.id, seq.length, seq.last_row
            )
            if isinstance(result, _IDLE):
                self._note_idle(seq, result)
        except AiciError as error:
            self._ended(seq, None, error)
            return
        self._results.append(result)
        if seq.flags:
            self._flags.append([seq.id, seq.flags])
            if seq.flags & MID_DRAFTS:
                self._flags[-1].append(self._client.writer.drafts)
        if result[RESULT_VERB] == STOP:
            self._end_sequence(seq, None)
        elif seq.context.log.waiting:
            self._logs.append([seq.id, seq.context.log.take_text()])

    def _note_idle(self, seq: Sequence, result: Splice | Look | Follow) -> None:
        """Notes a result that may change nothing in this step. Raises ResultError or LivelockError."""
        if isinstance(result, Follow):
            leader = self._client.sequences.get(result.leader)
            if leader is None or leader is seq or leader.request is not seq.request or leader.follows:
                raise ResultError(
                    f"aici_mid_result: sequence {result.leader} cannot be followed: it has ended, belongs to "
                    "another request, follows another one, or is this sequence"
                )
            self._resources.waits.begin_following(seq)
            return
        seq.count_idle(result)
        if isinstance(result, Look):
            seq.look = partial(self._client.dense.read, result.row, result.generation)

    def _stopped(self, seq: Sequence) -> None:
        self._results.append(Bare(seq.id, STOP))
        self._end_sequence(seq, None)

    def _ended(self, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Records the result of a mid_process that has returned or failed."""
        if error is None:
            assert value is not None
            seq.late_steps = 0
            self._arrived(seq, value)
            return
        if isinstance(error, GuestExit):
            self._stopped(seq)
            return
        if isinstance(error, TimeLimitError) and error.detail.get("callback") == _MID_NAME:
            error = TimeLimitError(f"{error.message}: {_time_allowed(seq)}", **error.detail)
        failure = error if isinstance(error, AiciError) else RuntimeFailure(f"mid_process failed: {error!r}")
        self._results.append(Bare(seq.id, ERROR, self._end_sequence(seq, failure)))

    def finish(self, seq: Sequence, value: int | None, error: Exception | None) -> None:
        """Records the end of a mid_process that this step waits for."""
        del self._waiting[seq.id]
        seq.waits_in = None
        first = not self._results
        self._ended(seq, value, error)
        if self._due and first:
            self._hurry()
        self._send_if_done()

    def defer(self, seq: Sequence) -> None:
        """Reports a sequence as late."""
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
            self._resources.ticker.hasten(grace)

    def _late(self, seq: Sequence) -> None:
        """Reports the sequence as late."""
        del self._waiting[seq.id]
        seq.waits_in = None
        if seq.final:
            self._results.append(Bare(seq.id, STOP))
            self._end_sequence(seq, None)
            return
        self._client.counters["late"] += 1
        self._results.append(Bare(seq.id, LATE))

    # -- answers --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Reports all sequences without a result as late when the deadline has passed."""
        for seq in list(self._waiting.values()):
            self._late(seq)
        self._send_if_done()

    def stop_waiting(self, seq: Sequence) -> None:
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
                if self._reported_bytes > MAX_REPORTED_BYTES:
                    break  # the rest is reported with the next step, before others
                self._report(by_request[variables], variables)
        return [[seq, list(values.values())] for seq, values in self._reported.values()]

    def _report(self, seq: int, variables: Variables) -> None:
        _, reported = self._reported.setdefault(variables, (seq, {}))
        for entry in variables.take_unreported():
            name, _, value = entry
            reported[name] = entry
            self._reported_bytes += len(name) + len(value)

    def _end_sequence(self, seq: Sequence, error: AiciError | None) -> list[Any] | None:
        """Frees the sequence; returns the error in wire form.

        Adds its last output to the logs and to the error, and reports its request's unreported variables.
        """
        if error is not None:
            self._client.counters[error.code] += 1
        if seq.context.log.waiting:
            text = seq.context.log.take_text()
            self._logs.append([seq.id, text])
            if error is not None:
                error.detail.setdefault("log", text)
        variables = seq.request.variables
        if variables in self._client.written:  # the request may end with the sequence
            if self._reported_bytes <= MAX_LAST_BYTES:
                self._report(seq.id, variables)
            elif seq.request.live == 1:
                self._client.counters["variables_untold"] += 1
        waiting, seq.waits_in = seq.waits_in, None
        self._client.drop(seq, self._resources.profiles if error is None else None)
        if waiting is not None:  # an earlier step, which need not wait until its deadline
            waiting.stop_waiting(seq)
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
        step.defer(seq)


def _time_allowed(seq: Sequence) -> str:
    """Describes the time that a mid_process may use, for an error message."""
    each, late = seq.instance.engine.limits.mid_ms, seq.request.limits.max_late_steps
    return f"it has {each:g} ms per step, and may be late in {late} steps in a row (mid_ms, max_late_steps)"
