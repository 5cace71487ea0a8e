"""A byte ring in shared memory for one writer and one reader.

A frame is a word (the length, with the top bit set if the message continues in the next frame)
followed by the bytes, padded to a multiple of 4. Positions are 64-bit counters that only grow, each
written by one side alone. The doorbell that follows every write orders the memory accesses.
The reader copies data out before it interprets them.
"""

from __future__ import annotations

from aicirt.contract.errors import ProtocolError

#: bytes before the data, two cache lines: the writer's position and processor; the reader's position
HEADER_BYTES = 128
_MORE = 0x80000000
_LAST = (1 << 64) - 1
#: maximum bytes of a message in several frames: the longest prompt has 16 MiB
MAX_MESSAGE = 64 << 20


class Ring:
    """A view of a ring: each side creates its own `Ring` over the same memory."""

    __slots__ = ("_capacity", "_data", "_parts", "_positions", "max_frame")

    def __init__(self, memory: memoryview) -> None:
        """Takes writable `memory` of HEADER_BYTES plus a capacity that is a multiple of 8."""
        self._positions = memory[:HEADER_BYTES].cast("Q")
        self._data = memory[HEADER_BYTES:]
        self._capacity = len(self._data)
        #: maximum bytes in one frame; longer messages are split
        self.max_frame = self._capacity // 2 - 4
        self._parts: list[bytes] = []

    def try_write(self, payload: bytes, more: bool = False) -> bool:
        """Writes one frame of at most `max_frame` bytes; returns False if there is no room now."""
        positions, capacity = self._positions, self._capacity
        position = positions[0]
        used = position - positions[8]
        if not 0 <= used <= capacity:
            raise ProtocolError(f"ring positions are inconsistent ({used} of {capacity} bytes used)")
        length = len(payload)
        padded = 4 + (length + 3 & ~3)
        if padded > capacity - used:
            return False
        if position > _LAST - padded:  # the peer, which can write here too, has changed it
            raise ProtocolError("ring positions are out of range")
        frame = (length | _MORE if more else length).to_bytes(4, "little") + payload
        at = position % capacity
        end = at + 4 + length
        if end <= capacity:
            self._data[at:end] = frame
        else:
            self._data[at:] = frame[: capacity - at]
            self._data[: end - capacity] = frame[capacity - at :]
        positions[0] = position + padded
        return True

    def publish_cpu(self, cpu: int) -> None:
        """Publishes the processor on which the writer runs."""
        self._positions[1] = cpu + 1

    @property
    def writer_cpu(self) -> int:
        """The processor on which the writer runs, as it has published; -1 if unknown."""
        return self._positions[1] - 1

    @property
    def waiting(self) -> bool:
        """Whether there is unread data; costs less than `read`."""
        return self._positions[0] != self._positions[8]

    @property
    def in_pieces(self) -> bool:
        """Whether only part of a message has been read; the rest may be waiting for room."""
        return bool(self._parts)

    def read(self) -> bytes | None:
        """Returns the next complete message, or None. Raises ProtocolError for invalid data."""
        positions, capacity = self._positions, self._capacity
        while True:
            start = positions[8]
            available = positions[0] - start
            if available == 0:
                return None
            if not 4 <= available <= capacity:
                raise ProtocolError(f"ring positions are inconsistent ({available} bytes available)")
            # a frame begins at a multiple of 4, so this word is contiguous
            at = start % capacity
            word = int.from_bytes(self._data[at : at + 4], "little")
            length = word & ~_MORE
            padded = 4 + (length + 3 & ~3)
            if padded > available:
                raise ProtocolError(f"a frame of {length} bytes, but only {available} are available")
            payload = self._copy_out(start + 4, length)
            positions[8] = start + padded
            if word & _MORE:
                self._parts.append(payload)
                if len(self._parts) * self.max_frame > MAX_MESSAGE:
                    raise ProtocolError(f"a message has more than {MAX_MESSAGE} bytes, which is the limit")
            elif self._parts:
                whole = b"".join([*self._parts, payload])
                self._parts.clear()
                return whole
            else:
                return payload

    def frames(self, message: bytes) -> list[tuple[bytes, bool]]:
        """Splits a message into (payload, more) frames for `try_write`."""
        limit = self.max_frame
        if len(message) <= limit:
            return [(message, False)]
        cuts = range(0, len(message), limit)
        return [(message[i : i + limit], i + limit < len(message)) for i in cuts]

    def release(self) -> None:
        """Releases the memory so that its mapping can be closed."""
        self._positions.release()
        self._data.release()

    def _copy_out(self, position: int, length: int) -> bytes:
        at = position % self._capacity
        end = at + length
        if end <= self._capacity:
            return bytes(self._data[at:end])
        return bytes(self._data[at:]) + bytes(self._data[: end - self._capacity])
