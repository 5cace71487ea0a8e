"""A child of this process, which another process may have forked: its signals, end, status and CPU time."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from aicirt.sandbox import kernel
from aicirt.system.files import Descriptor

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans(adopt: bool) -> None:
    """Sets whether descendants of this process become its children when their own parents end."""
    kernel.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def _ignore(_: int) -> None:
    pass


class Child:
    """A child process that only this object waits for."""

    def __init__(self, pid: int, ended: Callable[[int], None] = _ignore) -> None:
        """`ended` is called with the exit status, negative for a signal.

        Ends the process and raises OSError if it cannot be watched.
        """
        self.pid = pid
        #: the exit status, negative for a signal; None before `wait`
        self.status: int | None = None
        #: CPU time in seconds, once the process has ended
        self.cpu_s = 0.0
        self._ended = ended
        try:
            #: readable when the process has ended
            self.pidfd = Descriptor(os.pidfd_open(pid))
        except OSError:
            os.kill(pid, signal.SIGKILL)
            self.wait()
            raise

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd.fd, signal.SIGKILL)

    def wait(self) -> int:
        """Waits for the end; returns the exit status, negative for a signal."""
        if self.status is None:
            _, status, usage = os.wait4(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            self._ended(self.status)
        return self.status


#: starts a program with arguments. Its descriptors are copies of the given ones, numbered from a given number
#: on, and standard streams below that number. Raises RuntimeFailure or OSError if there is no room
Start = Callable[[str, Sequence[str], Sequence[int], int], Awaitable[Child]]
