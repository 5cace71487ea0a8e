"""The load of workers, which decides who gets the next sequence."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

#: a worker with a smaller busy share counts as idle: differences below it are noise
_IDLE_SHARE = 0.1
#: the share of a worker's time that a new sequence is expected to use, and for how many seconds it counts as
#: new: afterwards the share that the worker measures includes it
_NEW_SHARE, _NEW_SECONDS = 0.02, 2.0
#: added for every sequence: of equally busy workers, the one with fewer sequences has the lower score
_SEQUENCE_SHARE = 0.002


class Load:
    """The load of one worker: its last report, and the sequences placed there since."""

    __slots__ = ("_asked", "_missing", "_new", "_placed", "busy", "sequences")

    def __init__(self) -> None:
        #: share of its time, 0 to 1, that it spends on sequences, averaged over the last second or so
        self.busy = 0.0
        #: live sequences at the last report
        self.sequences = 0
        #: sequences placed here, and those of them that the worker has been asked to start
        self._placed = self._asked = 0
        self._missing = 0
        #: when the latest sequences were placed
        self._new: deque[float] = deque()

    def place(self) -> None:
        """Counts a sequence that will be started in the worker."""
        self._placed += 1
        self._new.append(time.monotonic())

    def report(self, stats: Mapping[str, Any]) -> None:
        """Reads the worker's answer to a ping."""
        asked = stats["asked"]
        self.sequences, self.busy = stats["sequences"], min(stats["busy"], 1.0)
        missing = self._placed - asked
        if missing < 0 or (missing == self._missing and asked == self._asked):
            self._placed, missing = asked, 0  # the clients that were to start them have ended
        self._asked, self._missing = asked, missing

    @property
    def coming(self) -> int:
        """Sequences that have been placed but not started yet."""
        return max(0, self._placed - self._asked)

    @property
    def score(self) -> float:
        """The load for comparing workers: 0 is idle, 1 is fully busy; every sequence adds a little."""
        since = time.monotonic() - _NEW_SECONDS
        while self._new and self._new[0] < since:
            self._new.popleft()
        sequences = self.sequences + self.coming
        return max(0.0, self.busy - _IDLE_SHARE) + _NEW_SHARE * len(self._new) + _SEQUENCE_SHARE * sequences
