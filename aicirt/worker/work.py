"""Guest calls that take longer than a moment: run as fibers, a slice at a time, in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from aicirt.wasm.fiber import Fiber

#: gets the callback's result, or what it ended with: an AiciError, or GuestExit
Done = Callable[[int | None, Exception | None], None]


class Work:
    """One guest call under way."""

    __slots__ = ("_cancelled", "_done", "fiber", "on_slice")

    def __init__(self, fiber: Fiber, done: Done, on_slice: Callable[[], None] | None = None) -> None:
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

    def cancel(self) -> None:
        """Ends the call without a result."""
        if not self._cancelled:
            self._cancelled = True
            self.fiber.cancel()


class IdleWork(Protocol):
    """Something that nobody waits for."""

    def run(self) -> bool:
        """Runs one slice; True if there is nothing more to run."""


class Agenda:
    """All work of the worker, served in turn: who needs many slices waits between them."""

    __slots__ = ("_idle", "_queue")

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._idle: deque[IdleWork] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue or self._idle)

    def when_idle(self, work: IdleWork) -> None:
        """Takes work of which a slice is run when there is nothing else to run."""
        self._idle.append(work)

    def add(self, work: Work) -> None:
        """Takes work whose first slice has run."""
        self._queue.append(work)

    def start(self, work: Work) -> None:
        """Runs the first slice at once: most calls need no other."""
        if not work.run():
            self._queue.append(work)

    def run_slice(self) -> None:
        """Runs the next slice of whoever is first in the queue."""
        if self._queue:
            work = self._queue.popleft()
            if not work.run():
                self._queue.append(work)
        elif self._idle[0].run():
            self._idle.popleft()
