"""The process at the other end: who runs it, and whether it is alive, without races on reused process ids."""

from __future__ import annotations

import os
import select
import socket
import struct

_CREDENTIALS = struct.Struct("=iII")


def peer_credentials(sock: socket.socket) -> tuple[int, int]:
    """(process id, user id) of the other end of a connected Unix socket; the id is 0 where we cannot see it.

    Of a listening process they are those from when it began to listen.
    """
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid


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
