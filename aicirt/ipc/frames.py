"""Messages and file descriptors over a Unix stream socket, and its peer process.

A frame is a 4-byte little-endian length followed by a msgpack message.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from aicirt.contract.errors import ProtocolError
from aicirt.contract.messages import Reply, decode, encode

_CREDENTIALS = struct.Struct("=iII")


def peer_credentials(sock: socket.socket) -> tuple[int, int]:
    """Returns (process id, user id) of the peer of a connected Unix socket; an invisible process has id 0.

    For a peer that listens, the ids date from the time when it began to listen.
    """
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid


_LENGTH = struct.Struct("<I")
#: room for 16 descriptors
_ANCILLARY = socket.CMSG_SPACE(16 * 4)
#: descriptors arrive with the first byte of their message, so these are of the current and the next message
_MAX_ARRIVED = 2
#: maximum bytes of a frame. An upload is one frame; the largest accepted module is well below this
MAX_FRAME = 256 << 20


def frame(message: NamedTuple) -> bytes:
    """Returns the bytes to send for a message.

    Raises ProtocolError if the message cannot be sent. A reply that cannot be sent is replaced by an error
    reply: the caller receives the error, and the connection continues to serve other calls.
    """
    try:
        payload = _payload(message)
    except ProtocolError as error:
        if not isinstance(message, Reply):
            raise
        problem = ProtocolError(f"the answer cannot be sent: {error.message}")
        payload = _payload(Reply(message.number, problem.to_wire(), None))
    return _LENGTH.pack(len(payload)) + payload


def _payload(message: NamedTuple) -> bytes:
    try:
        payload = encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"the message has a value that msgpack cannot encode: {error}") from error
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"a message of {len(payload)} bytes is over the limit of {MAX_FRAME}")
    return payload


def _poll(sock: socket.socket) -> select.poll:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll


class FrameSocket:
    """A socket for blocking or polling use, which also passes file descriptors."""

    def __init__(self, sock: socket.socket, max_frame: int = MAX_FRAME) -> None:
        """`max_frame`: maximum bytes of a frame of the peer."""
        self.socket = sock
        self._max_frame = max_frame
        self._buffer = bytearray()
        #: number of stream bytes before the buffer
        self._position = 0
        #: (stream position of a byte of the message, its descriptors), for messages that have not been taken
        self._arrived: deque[tuple[int, list[int]]] = deque()
        self._fds: list[int] = []
        self._ready: select.poll | None = None
        self.closed = False

    def send(
        self,
        message: NamedTuple,
        fds: list[int] | None = None,
        hopeless: Callable[[], bool] | None = None,
    ) -> None:
        """Sends the whole message. Raises OSError if the peer is gone, and ProtocolError.

        If the peer reads nothing within the socket's timeout, asks `hopeless` whether to give up. Raises
        TimeoutError then, or BlockingIOError if the kernel keeps the timeout.
        """
        data, sent = memoryview(frame(message)), 0
        while sent < len(data):
            try:
                if fds and not sent:
                    sent = socket.send_fds(self.socket, [data], fds)
                else:
                    sent += self.socket.send(data[sent:])
            except (TimeoutError, BlockingIOError):
                if hopeless is None or hopeless():
                    raise

    def receive(self, deadline: float | None = None) -> list[Any] | None:
        """Waits for the next message; returns None at the end of the stream.

        Raises TimeoutError at the deadline (`time.monotonic`), or after the socket's timeout.
        """
        while (message := self._take()) is None:
            if deadline is not None:
                # a non-blocking recv would not do: on a socket with a timeout, Python waits before it
                self._ready = self._ready or _poll(self.socket)
                if not self._ready.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                    raise TimeoutError("no message came in time")
            if not self._fill(0):
                return None
        return message

    def poll(self, *, once: bool = False) -> list[Any] | None:
        """Returns the next message, or None if none has arrived; `closed` is set at the end of the stream.

        With `once`, reads 64 KiB at most.
        """
        message = self._take()
        while message is None and not self.closed:
            self._ready = self._ready or _poll(self.socket)
            if not self._ready.poll(0):  # a fifth of the time of a `recvmsg` that fails
                return None
            try:
                if not self._fill(socket.MSG_DONTWAIT):
                    return None
            except (BlockingIOError, InterruptedError):
                return None
            message = self._take()
            if once:
                break
        return message

    def take_fds(self) -> list[int]:
        """Returns the descriptors that came with the last message; the caller must close them.

        There are fewer than were sent if this process may open no more files.
        """
        fds, self._fds = self._fds, []
        return fds

    def close(self) -> None:
        """Closes the socket and all descriptors that have not been taken."""
        self.closed = True
        self.socket.close()
        self._drop(self.take_fds())
        while self._arrived:
            self._drop(self._arrived.popleft()[1])

    @staticmethod
    def _drop(fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)

    def _fill(self, flags: int) -> bool:
        # not socket.recv_fds: it ignores its flags (Python 3.11) and would block
        ancillary: list[tuple[int, int, bytes]] = []
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, _ANCILLARY, flags | socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data = b""
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                # the kernel may put data sent earlier in front of this message, but none that was sent later
                last_byte = self._position + len(self._buffer) + len(data) - 1
                self._arrived.append((last_byte, list(array("i", payload[: len(payload) // 4 * 4]))))
        if len(self._arrived) > _MAX_ARRIVED:
            raise ProtocolError("descriptors arrived that belong to no message")
        self._buffer += data
        self.closed = self.closed or not data
        return bool(data)

    def _take(self) -> list[Any] | None:
        if len(self._buffer) < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._max_frame:
            raise ProtocolError(f"a frame of {length} bytes is over the limit of {self._max_frame}")
        if len(self._buffer) < 4 + length:
            return None
        message = decode(bytes(self._buffer[4 : 4 + length]))
        del self._buffer[: 4 + length]
        self._position += 4 + length
        self._drop(self._fds)
        self._fds = []
        while self._arrived and self._arrived[0][0] < self._position:
            self._fds += self._arrived.popleft()[1]
        return message
