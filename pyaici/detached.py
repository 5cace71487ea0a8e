"""Processes that are no children of the one that starts them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from typing import Any


class DetachedProcess:
    """What `subprocess.Popen` has for children, as far as it can be had."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: None while it lives; -9 if it was killed here, else 0: only a parent is told
        self.returncode: int | None = None
        self._fd = os.pidfd_open(pid)
        self._killed = False

    def poll(self) -> int | None:
        """Whether it has ended, without waiting: `returncode`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = -signal.SIGKILL if self._killed else 0
            os.close(self._fd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        self._killed = True
        self.send_signal(signal.SIGKILL)


def start_detached(command: Sequence[str], *, stdout: Any, stderr: Any, **options: Any) -> DetachedProcess:
    """Starts a process whose parent is not this one but a shell, which ends.

    Options are those of `subprocess.Popen`; what it prints goes to `stderr`.
    """
    shell = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
    done = subprocess.run(shell, stdout=subprocess.PIPE, stderr=stderr, check=True, **options)
    return DetachedProcess(int(done.stdout))
