"""What the engine's thread is asked to do between the engine's steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Protocol

from pyaici.server.errors import ApiError


class Job(Protocol):
    """Something to be done once, or not any more."""

    def do(self) -> object:
        """Raises nothing."""

    def end(self, error: ApiError) -> None:
        """It will not be done: whoever waits for it gets this error."""


class Call:
    """A function to be called."""

    def __init__(
        self,
        work: Callable[[], Any],
        refused: Callable[[ApiError], None] | None = None,
        told: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`refused`: told when it will not be called. `told`: hears what it raises, where nobody waits."""
        self._work = work
        self._refused = refused
        self._told = told
        self.future: Future[Any] = Future()

    def do(self) -> None:
        """Calls it, unless whoever waited does not any more."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except BaseException as error:
            self.future.set_exception(error)
            if self._told is not None:
                self._told(error)

    def end(self, error: ApiError) -> None:
        """As `Job` has it."""
        if self._refused is not None:
            self._refused(error)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Piecewise:
    """A generator whose pieces are done one by one; it returns the result."""

    def __init__(self, work: Callable[[], Generator[None, None, Any]], wanted: Callable[[], bool]) -> None:
        self._work = work
        self._wanted = wanted
        self._pieces: Generator[None, None, Any] | None = None
        self.future: Future[Any] = Future()

    def do(self) -> bool:
        """Does the next piece; whether there are more. Raises nothing."""
        if self._pieces is None and not self.future.set_running_or_notify_cancel():
            return False
        try:
            if self._pieces is None:
                self._pieces = self._work()
            if self._wanted():
                next(self._pieces)
                return True
            self._pieces.close()  # what it holds of the engine is given back
            self.future.set_exception(ApiError(499, "the client has gone", code="disconnected"))
        except StopIteration as done:
            self.future.set_result(done.value)
        except BaseException as error:
            self.future.set_exception(error)
        return False

    def end(self, error: ApiError) -> None:
        """As `Job` has it."""
        if self._pieces is None and not self.future.set_running_or_notify_cancel():
            return
        try:
            if self._pieces is not None:
                self._pieces.close()
        finally:
            self.future.set_exception(error)
