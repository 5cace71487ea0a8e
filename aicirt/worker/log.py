"""What a guest prints, kept until the client has it, with a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aicirt.errors import OwnerLimitError, ProtocolError

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner


class Log:
    """stdout and stderr of one sequence, in the order of writing."""

    __slots__ = ("_dropped", "_limit", "_owner", "_parts", "_size", "_why", "waiting")

    def __init__(self, limit: int, owner: Owner | None = None) -> None:
        """`limit`: bytes between two calls of `take`; all logs of an `owner` together have a limit too."""
        self._limit = limit
        self._owner = owner
        #: the limit that the first of what was dropped met
        self._why = ""
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
        room, owner = self._limit - self._size, self._owner
        if owner is not None and owner.log_room < room:
            room = owner.log_room
        if len(data) > room:
            self._drop(len(data) - room)
            data = data[:room]
        if data:
            self._parts.append(data)
            self._size += len(data)
            if owner is not None:
                owner.log_bytes += len(data)

    def _drop(self, count: int) -> None:
        owner = self._owner
        if not self._dropped:
            self._why = f"{self._limit} per step"
            if owner is not None:
                owner.counters["log_dropped"] += 1
                if owner.log_room < self._limit - self._size:
                    self._why = f"{owner.log_limit} for all that owner {owner.name!r} has waiting here"
        self._dropped += count

    def take(self) -> str:
        """All text since the last call; bytes that are not UTF-8 are replaced."""
        text = b"".join(self._parts).decode("utf-8", "replace")
        if self._dropped:
            text += f"\n[{self._dropped} bytes of output dropped: over the limit of {self._why}]\n"
        self.clear()
        return text

    def state(self) -> list[Any]:
        """All of it, for `restore` in another process."""
        return [b"".join(self._parts), self._dropped, self._why]

    def restore(self, state: list[Any]) -> None:
        """What another process had kept. Raises OwnerLimitError if it would have to be dropped here."""
        data, dropped, why = state
        if not isinstance(data, bytes) or not isinstance(dropped, int) or not isinstance(why, str):
            raise ProtocolError("output of a guest that is none")
        owner = self._owner
        if len(data) > self._limit or (owner is not None and len(data) > owner.log_room):
            raise OwnerLimitError(f"there is no room for {len(data)} bytes of output here")
        self.write(data)
        self._dropped, self._why = dropped, why
        self.waiting = bool(data or dropped)

    def clear(self) -> None:
        """Nobody will take what is here."""
        if self._owner is not None:
            self._owner.log_bytes -= self._size
        self._parts.clear()
        self._size = self._dropped = 0
        self.waiting = False
