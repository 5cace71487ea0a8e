"""What a guest prints, kept until the client has it, with a bound."""

from __future__ import annotations


class Log:
    """stdout and stderr of one sequence, in the order of writing."""

    __slots__ = ("_dropped", "_limit", "_parts", "_size", "waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._dropped = 0
        #: there is something to take; looked at in every step of every sequence
        self.waiting = False

    def write(self, data: bytes) -> None:
        """Adds output; what goes beyond the limit is counted and dropped (the beginning is worth more)."""
        if not data:
            return
        self.waiting = True
        room = self._limit - self._size
        if len(data) > room:
            self._dropped += len(data) - room
            data = data[:room]
        if data:
            self._parts.append(data)
            self._size += len(data)

    def take(self) -> str:
        """All text since the last call; bytes that are not UTF-8 are replaced."""
        text = b"".join(self._parts).decode("utf-8", "replace")
        if self._dropped:
            text += f"\n[{self._dropped} bytes of output dropped: over the limit of {self._limit} per step]\n"
        self._parts.clear()
        self._size = self._dropped = 0
        self.waiting = False
        return text
