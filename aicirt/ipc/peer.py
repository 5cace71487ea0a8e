"""Whether another process is alive, without races on reused process ids."""

from __future__ import annotations

import os
import select


class Peer:
    """A process watched through a pidfd."""

    __slots__ = ("_fd", "_poll", "pid")

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError if there is no such process."""
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def alive(self) -> bool:
        """False once the process has ended (also as a zombie)."""
        return self._fd >= 0 and not self._poll.poll(0)

    def close(self) -> None:
        """Stops watching."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
