"""Messages on a Unix stream socket: a 4-byte length, then msgpack; file descriptors may ride along."""

from __future__ import annotations

import asyncio
import socket
import struct
from array import array
from typing import Any, NamedTuple

from aicirt.errors import ProtocolError
from aicirt.ipc.messages import decode, encode

_LENGTH = struct.Struct("<I")
#: room for 16 descriptors
_ANCILLARY = socket.CMSG_SPACE(16 * 4)
#: an upload is one frame; the largest module that is taken is well below
MAX_FRAME = 256 << 20


def frame(message: NamedTuple) -> bytes:
    """The bytes to send for a message."""
    payload = encode(message)
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"a message of {len(payload)} bytes is over the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(payload)) + payload


async def read_message(reader: asyncio.StreamReader) -> list[Any] | None:
    """The next message, or None at the end of the stream."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(4))
        if length > MAX_FRAME:
            raise ProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
        return decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class FrameSocket:
    """Blocking or polling use of a socket, with descriptors."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._buffer = bytearray()
        #: descriptors received and not yet claimed, in order of arrival
        self.fds: list[int] = []
        self.closed = False

    def send(self, message: NamedTuple, fds: list[int] | None = None) -> None:
        """Sends whole. Raises OSError when the peer is gone."""
        data = memoryview(frame(message))
        sent = socket.send_fds(self.socket, [data], fds) if fds else 0
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def receive(self) -> list[Any] | None:
        """Waits for the next message (as long as the socket's timeout); None at the end of the stream."""
        while (message := self._take()) is None:
            if not self._fill(0):
                return None
        return message

    def poll(self) -> list[Any] | None:
        """The next message if one is there; None else (`closed` tells the end of the stream)."""
        message = self._take()
        while message is None and not self.closed:
            try:
                if not self._fill(socket.MSG_DONTWAIT):
                    return None
            except (BlockingIOError, InterruptedError):
                return None
            message = self._take()
        return message

    def close(self) -> None:
        """Closes the socket."""
        self.closed = True
        self.socket.close()

    def _fill(self, flags: int) -> bool:
        # socket.recv_fds ignores its flags (Python 3.11): it would block
        ancillary: list[tuple[int, int, bytes]] = []
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, _ANCILLARY, flags | socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data = b""
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.fds += array("i", payload[: len(payload) // 4 * 4])
        self._buffer += data
        self.closed = self.closed or not data
        return bool(data)

    def _take(self) -> list[Any] | None:
        if len(self._buffer) < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME:
            raise ProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
        if len(self._buffer) < 4 + length:
            return None
        message = decode(bytes(self._buffer[4 : 4 + length]))
        del self._buffer[: 4 + length]
        return message
