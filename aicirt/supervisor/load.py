"""How much a worker has to do, as far as the supervisor knows."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from aicirt.errors import ProtocolError

#: a worker that is busy for less of its time has time for everybody: small differences say nothing
_IDLE_SHARE = 0.1
#: what a new sequence is expected to take of a worker's time. It counts as new for so long: afterwards it
#: is a part of what the worker measures
_NEW_SHARE, _NEW_SECONDS = 0.02, 2.0
#: of one that is not new: among workers that are as busy, the one with fewer sequences
_SEQUENCE_SHARE = 0.002


class Load:
    """What a worker has said last, and what has been placed there since."""

    __slots__ = ("_asked", "_missing", "_new", "_placed", "busy", "clients", "sequences")

    def __init__(self) -> None:
        #: share of its time, 0 to 1, that it works for sequences, averaged over the last second or so
        self.busy = 0.0
        #: live ones at the last answer
        self.sequences = 0
        #: of these, by number of the client
        self.clients: dict[int, int] = {}
        #: sequences that were to start there, and those that it has been asked to start
        self._placed = self._asked = 0
        self._missing = 0
        #: when the latest were placed
        self._new: deque[float] = deque()

    def place(self) -> None:
        """A sequence will be started there."""
        self._placed += 1
        self._new.append(time.monotonic())

    def moved_in(self, count: int) -> None:
        """Sequences have moved there."""
        self._new.extend([time.monotonic()] * count)

    def report(self, stats: Any) -> None:
        """The worker's answer to a ping. Raises ProtocolError if it is none."""
        try:
            sequences, asked, busy = stats["sequences"], stats["asked"], stats["busy"]
            clients = {int(number): int(count) for number, count in stats["clients"].items()}
            sensible = isinstance(sequences, int) and isinstance(asked, int) and math.isfinite(busy)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"no answer to a ping: {error!r}") from None
        if not sensible:
            raise ProtocolError(f"no answer to a ping: {sequences!r}, {asked!r}, {busy!r}")
        self.sequences, self.clients, self.busy = sequences, clients, min(max(busy, 0.0), 1.0)
        missing = self._placed - asked
        if missing < 0 or (missing == self._missing and asked == self._asked):
            self._placed, missing = asked, 0  # whoever was to start those has given up
        self._asked, self._missing = asked, missing

    @property
    def coming(self) -> int:
        """Sequences that have been placed and not started yet."""
        return max(0, self._placed - self._asked)

    @property
    def score(self) -> float:
        """What to compare workers by; 0 is idle and 1 as busy as can be, as long as sequences are few."""
        since = time.monotonic() - _NEW_SECONDS
        while self._new and self._new[0] < since:
            self._new.popleft()
        sequences = self.sequences + self.coming
        return max(0.0, self.busy - _IDLE_SHARE) + _NEW_SHARE * len(self._new) + _SEQUENCE_SHARE * sequences
