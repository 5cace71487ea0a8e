"""A child process that answers calls within limits of time, and may crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from typing import Any

from aicirt.system.silence import Silence
from lab.measurement.memory import resident_kib

#: until the child is ready: it loads engines and a vocabulary, perhaps on a busy machine
_START_SECONDS = 120.0
#: for a child that has nothing to do
_CLOSE_SECONDS = 5.0
#: between two looks at the time that a call takes
_POLL_SECONDS = 0.05


class ChildError(RuntimeError):
    """The child did not answer a call. The next call starts a new one."""


class CallTimeout(ChildError):
    """The call took longer than its limit, and the child was killed."""


class ChildDied(ChildError):
    """The child ended during the call."""


class Child:
    """Calls methods of an object in a child process, which starts with the first call.

    `enter(*arguments)` is called in the child and returns a context manager for the object. It must be a
    function of a module, and all arguments and results must be picklable. Use `close` at the end.
    """

    def __init__(self, enter: Callable[..., AbstractContextManager[Any]], *arguments: Any) -> None:
        self._enter, self._arguments = enter, arguments
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        #: resident memory when it was ready, KiB
        self._ready_kib = 0

    @property
    def pid(self) -> int:
        """The process id. Starts the child if it does not run."""
        return self._running().pid or 0

    @property
    def grown_kib(self) -> int:
        """KiB by which its resident memory has grown since it was ready."""
        return resident_kib(self.pid) - self._ready_kib

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Calls a method. Raises CallTimeout, or ChildDied (also if the method raises an exception).

        Time for which the child lacks a processor does not count."""
        self._running()
        return self._ask((method, arguments), method, seconds)

    def close(self) -> None:
        """Ends the child."""
        self._end(_CLOSE_SECONDS)

    def _running(self) -> multiprocessing.process.BaseProcess:
        if self._process is None:
            context = multiprocessing.get_context("forkserver")
            # imports take longer than all else; this has an effect only before the first child
            context.set_forkserver_preload([self._enter.__module__])
            self._pipe, other = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(other, self._enter, self._arguments), daemon=True
            )
            self._process.start()
            other.close()
            self._ask(None, "start", _START_SECONDS)
            self._ready_kib = resident_kib(self._process.pid or 0)
        return self._process

    def _ask(self, message: Any, what: str, seconds: float) -> Any:
        assert self._pipe is not None and self._process is not None
        try:
            if message is not None:
                self._pipe.send(message)
            silence = Silence(self._process.pid or 0)
            while not self._pipe.poll(min(seconds, _POLL_SECONDS)):
                if silence.seconds() >= seconds:
                    self._end(0)
                    raise CallTimeout(f"{what} took more than {seconds:g} s")
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            status = self._end(_CLOSE_SECONDS)
            raise ChildDied(f"the process ended in {what} with status {status}") from None

    def _end(self, patience: float) -> int | None:
        """Ends the child, by force after so many seconds. Returns its exit status, or minus a signal."""
        if self._process is None or self._pipe is None:
            return None
        self._pipe.close()  # the child reads the end of its input
        self._process.join(patience)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        status = self._process.exitcode
        self._process = self._pipe = None
        return status


def _serve(
    pipe: Connection, enter: Callable[..., AbstractContextManager[Any]], arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    os.dup2(2, 1)  # the parent's output is for figures
    with enter(*arguments) as target, suppress(EOFError, ConnectionError):  # the parent has gone
        pipe.send(None)
        while True:
            method, values = pipe.recv()
            pipe.send(getattr(target, method)(*values))
