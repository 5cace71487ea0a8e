"""Scheduling of guest calls among owners.

Short calls run within a step, where each owner has a share of the time. Long ones run in slices, with owners
in turn, interruptible by messages.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aicirt.contract.errors import AiciError, RuntimeFailure
from aicirt.ipc.ring import Doorbell, current_cpu
from aicirt.settings import IDLE_WAIT_SECONDS, TICK_MS
from aicirt.wasm.fiber import Fiber

if TYPE_CHECKING:
    from aicirt.worker.owners import Owner, Owners

#: time constant of the average: work that long ago counts 1/e of work now
AVERAGE_SECONDS = 1.0
#: shortest time between two measurements; a shorter one is inaccurate
_MIN_SECONDS = 0.01


class Meter:
    """Measures the work for sequences: their steps and starts, and slices of long calls.

    Waiting and spinning for an expected step do not count, nor do calls of the supervisor.
    """

    __slots__ = ("_busy", "_cpu_ns", "_looked_at", "_seen_ns", "_since_cpu_ns", "_since_ns", "_work_ns")

    def __init__(self) -> None:
        self._since_ns = self._since_cpu_ns = 0
        self._work_ns = self._seen_ns = self._cpu_ns = 0
        self._looked_at = time.monotonic_ns()
        self._busy = 0.0

    def begin(self) -> None:
        """Begins to measure work; must not be nested."""
        self._since_ns = time.monotonic_ns()
        self._since_cpu_ns = time.thread_time_ns()

    def end(self) -> None:
        """Ends the measurement that `begin` has begun."""
        self._cpu_ns += time.thread_time_ns() - self._since_cpu_ns
        self._work_ns += time.monotonic_ns() - self._since_ns

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all work so far."""
        return self._cpu_ns / 1e9

    def busy(self) -> float:
        """Returns the fraction of the time, 0 to 1, spent on work, averaged over about the last second.

        This is wall-clock time, because a worker that shares its processor has less capacity.
        """
        now = time.monotonic_ns()
        seconds = (now - self._looked_at) / 1e9
        if seconds >= _MIN_SECONDS:
            share = min(1.0, (self._work_ns - self._seen_ns) / 1e9 / seconds)
            self._busy += (1 - math.exp(-seconds / AVERAGE_SECONDS)) * (share - self._busy)
            self._looked_at, self._seen_ns = now, self._work_ns
        return self._busy


class Listener:
    """A thread that waits for the bell while the worker runs guests; a bell has one waiter at a time."""

    def __init__(self, bell: Doorbell, interrupt: Callable[[], object]) -> None:
        """`interrupt` is called in the thread when the bell rings."""
        self._bell = bell
        self._interrupt = interrupt
        #: the thread was sent to the bell, and the worker has not seen it return; only the worker uses this
        self._sent = False
        self._dismissed = False
        self._over = False
        # used as semaphores: one thread acquires, the other one releases
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None
        #: the worker's CPU, and the CPU on which the thread was placed for it
        self._wanted_cpu = self._cpu = -1

    def start(self) -> None:
        """Starts the thread. Raises RuntimeFailure if no thread can be made."""
        self._thread = threading.Thread(target=self._attend_until_stopped, name="listener", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise RuntimeFailure("a worker cannot start: no thread is left (raise ulimit -u)") from error

    def listen(self) -> None:
        """Sends the thread to the bell, unless it waits there already."""
        if self._sent and not self._back.acquire(False):
            return
        self._sent = True
        self._dismissed = False
        self._wanted_cpu = current_cpu()
        self._go.release()

    def dismiss(self) -> bool:
        """Calls the thread back, so that the worker can wait for the bell itself.

        Returns whether the thread was at the bell. It may then have consumed a client's ring, so the worker
        must check for work once more before it waits.
        """
        if not self._sent:
            return False
        self._sent = False
        if not self._back.acquire(False):
            self._dismissed = True
            self._bell.ring()
            self._back.acquire()
        return True

    def end_thread(self) -> None:
        """Ends the thread; the bell can then be closed."""
        self.dismiss()  # first: a thread that is on its way to the bell must not see `_over` yet
        self._over = True
        if self._thread is not None:
            self._go.release()
            self._thread.join()
            self._thread = None

    def _follow(self) -> None:
        """Moves this thread to the processor of the guest that it interrupts.

        On the ringing client's processor, the thread would wait until the client sleeps. A client that needs
        the answer at once does not sleep.
        """
        if self._thread is not None and self._wanted_cpu != self._cpu:
            self._cpu = self._wanted_cpu
            os.sched_setaffinity(0, {self._cpu})

    def _attend_until_stopped(self) -> None:
        while not self._over:
            self.attend()

    def attend(self) -> None:
        """Waits until the thread is sent to the bell, then for the bell, and interrupts the guest."""
        self._go.acquire()
        if self._over:
            return
        self._follow()
        while not self._bell.wait_for_ring(IDLE_WAIT_SECONDS):
            pass
        if not self._dismissed:
            self._interrupt()
        self._back.release()


#: receives the call's result, or the error that ended it, for example an AiciError or a GuestExit
Done = Callable[[int | None, Exception | None], None]

#: CPU time of one turn. A slice takes about a tick (1 ms), but a host function cannot be interrupted. An
#: owner whose slice took longer skips as many turns as it has used in excess
_TURN_NS = 2_000_000


class Task(Protocol):
    """Work that an `Agenda` runs a slice at a time."""

    #: the owner whose turns the task uses; "" = the runtime itself
    owner: str

    def run(self) -> bool:
        """Runs one slice; returns True if the task is finished."""


class Work:
    """A guest call in progress."""

    __slots__ = ("_cancelled", "_done", "fiber", "on_slice", "owner")

    def __init__(
        self, owner: str, fiber: Fiber, done: Done, on_slice: Callable[[], None] | None = None
    ) -> None:
        self.owner = owner
        self.fiber = fiber
        self._done = done
        #: called after every slice that did not finish the call
        self.on_slice = on_slice
        self._cancelled = False

    def run(self) -> bool:
        """Runs one slice; returns True if the call has ended."""
        if self._cancelled:
            return True
        try:
            if not self.fiber.poll():
                if self.on_slice is not None:
                    self.on_slice()
                return self._cancelled
            result = self.fiber.result
        except Exception as error:
            self._done(None, error)
        else:
            self._done(result, None)
        return True

    def fail(self, error: AiciError) -> None:
        """Ends the call with an error from outside."""
        if not self._cancelled:
            self.cancel()
            self._done(None, error)

    def cancel(self) -> None:
        """Ends the call without a result."""
        if not self._cancelled:
            self._cancelled = True
            self.fiber.abandon_call()


class _OwnerQueue:
    """The tasks of one owner, served round robin."""

    __slots__ = ("overdrawn_ns", "owner", "tasks")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tasks: deque[Task] = deque()
        #: CPU time (ns) that the owner has used beyond its turns
        self.overdrawn_ns = 0


class RoundRobin:
    """Tasks of many owners; each owner gets the same share of CPU time, however many tasks it has."""

    __slots__ = ("_by_owner", "_turns")

    def __init__(self) -> None:
        self._by_owner: dict[str, _OwnerQueue] = {}
        #: owners in the order of their turns
        self._turns: deque[_OwnerQueue] = deque()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, task: Task) -> None:
        """Appends `task` to the queue of its owner."""
        queue = self._by_owner.get(task.owner)
        if queue is None:
            queue = self._by_owner[task.owner] = _OwnerQueue(task.owner)
            self._turns.append(queue)
        queue.tasks.append(task)

    def run_slice(self) -> None:
        """Runs a task of the owner whose turn it is for one slice."""
        turns = self._turns
        queue = turns[0]
        while len(turns) > 1 and queue.overdrawn_ns >= _TURN_NS:
            queue.overdrawn_ns -= _TURN_NS
            turns.rotate(-1)
            queue = turns[0]
        task = queue.tasks.popleft()
        begin = time.thread_time_ns()
        try:
            if not task.run():
                queue.tasks.append(task)
        finally:
            if queue.tasks:
                used = time.thread_time_ns() - begin
                queue.overdrawn_ns = max(0, queue.overdrawn_ns + used - _TURN_NS)
                turns.rotate(-1)
            else:
                turns.popleft()
                del self._by_owner[queue.owner]


class Agenda:
    """All tasks of the worker. Idle tasks, for which nobody waits, run only while there are no others."""

    __slots__ = ("_idle", "_urgent")

    def __init__(self) -> None:
        self._urgent = RoundRobin()
        self._idle = RoundRobin()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._idle)

    def when_idle(self, task: Task) -> None:
        """Adds an idle task, for which nobody waits."""
        self._idle.add(task)

    def add(self, task: Task) -> None:
        """Adds a task for which a client or the supervisor waits."""
        self._urgent.add(task)

    def start_task(self, task: Task) -> None:
        """Runs the first slice at once, as most calls need no other, and adds the task if it goes on."""
        if not task.run():
            self._urgent.add(task)

    def run_slice(self) -> None:
        """Runs the next slice, of an idle task only if there are no others."""
        (self._urgent or self._idle).run_slice()


#: ns. The thread's clock has been read during a longer call, which is charged by that clock: `used_time`
LOOKED_AT_NS = int(2 * TICK_MS * 1e6)


def used_time(since_ns: int, now_ns: int, charged_ns: int) -> int:
    """Returns the ns that one or two consecutive calls have used, from `time.monotonic_ns` before and after.

    The monotonic clock also counts other threads. So a long call counts at most `charged_ns`, measured on the
    thread's clock, plus the time before the first reading of that clock.
    """
    used = now_ns - since_ns
    return used if used < LOOKED_AT_NS else min(used, charged_ns + LOOKED_AT_NS)


class StepShares:
    """The time that each owner has used in a part of a step, while other owners wait.

    An owner that has used its share gets no more, unless no other owner has sequences in this worker. After a
    wall-clock time far beyond any share no owner gets more, so that the worker answers other clients.
    """

    __slots__ = ("_limit_ns", "_spent", "over_at", "shared")

    def __init__(self, owners: Owners, limit_ms: float, most_ms: float) -> None:
        """`limit_ms` is the CPU time of one owner, `most_ms` the wall-clock time of all together."""
        #: whether several owners have sequences; otherwise `has_time` and `charge` need not be called
        self.shared = len(owners.active) > 1
        #: time (`time.monotonic_ns`) from which no call may begin
        self.over_at = time.monotonic_ns() + int(most_ms * 1e6)
        self._limit_ns = int(limit_ms * 1e6)
        self._spent: dict[Owner | None, int] = {}

    def has_time(self, owner: Owner | None) -> bool:
        """Returns whether `owner` has time left in its share."""
        return self._spent.get(owner, 0) < self._limit_ns

    def charge(self, owner: Owner | None, used_ns: int) -> None:
        """Counts the time that a call has used."""
        self._spent[owner] = self._spent.get(owner, 0) + used_ns

    def take_debts(self, owners: Owners) -> None:
        """Charges owners for the time beyond their share in earlier steps."""
        for owner in owners.in_debt:
            self._spent[owner] = owner.debt_ns

    def leave_debts(self, owners: Owners) -> None:
        """Records the time beyond each owner's share, for the next steps."""
        owners.in_debt.clear()
        for owner, spent in self._spent.items():
            if owner is not None and spent > self._limit_ns:
                owner.debt_ns = spent - self._limit_ns
                owners.in_debt.append(owner)
