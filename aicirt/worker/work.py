"""Work that takes longer than a moment: run a slice at a time; owners take turns."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aicirt.errors import AiciError
from aicirt.wasm.fiber import Fiber

#: gets the callback's result, or what it ended with: an AiciError, or GuestExit
Done = Callable[[int | None, Exception | None], None]

#: CPU time of one turn. A slice takes about a tick (1 ms), but a host function cannot be interrupted: an
#: owner whose slice took longer sits out the turns that it has used up
_TURN_NS = 2_000_000


class Task(Protocol):
    """Something that an `Agenda` runs a slice at a time."""

    #: who takes the turns; "" = the runtime itself
    owner: str

    def run(self) -> bool:
        """Runs one slice; True if there is nothing more to run."""


class Work:
    """One guest call under way."""

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
        """Runs one slice; True if there is nothing more to run."""
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
        """Ends the call with an error that is not its own."""
        if not self._cancelled:
            self.cancel()
            self._done(None, error)

    def cancel(self) -> None:
        """Ends the call without a result."""
        if not self._cancelled:
            self._cancelled = True
            self.fiber.cancel()


class _OwnerQueue:
    """The tasks of one owner, served round robin."""

    __slots__ = ("overdrawn_ns", "owner", "tasks")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tasks: deque[Task] = deque()
        #: CPU time beyond that of the turns which the owner has had
        self.overdrawn_ns = 0


class RoundRobin:
    """Tasks of many owners. Each owner gets the same share of CPU time, however many tasks it has."""

    __slots__ = ("_by_owner", "_turns")

    def __init__(self) -> None:
        self._by_owner: dict[str, _OwnerQueue] = {}
        #: the owner whose turn it is first
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
        """Runs the next slice of the owner whose turn it is."""
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
    """All tasks of the worker. Those that nobody waits for run only while there are no others."""

    __slots__ = ("_idle", "_urgent")

    def __init__(self) -> None:
        self._urgent = RoundRobin()
        self._idle = RoundRobin()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._idle)

    def when_idle(self, task: Task) -> None:
        """Takes a task that nobody waits for."""
        self._idle.add(task)

    def add(self, task: Task) -> None:
        """Takes a task that somebody waits for."""
        self._urgent.add(task)

    def start(self, task: Task) -> None:
        """Runs the first slice at once: most calls need no other."""
        if not task.run():
            self._urgent.add(task)

    def run_slice(self) -> None:
        """Runs the next slice."""
        (self._urgent or self._idle).run_slice()
