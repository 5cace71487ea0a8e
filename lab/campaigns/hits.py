"""The faults of a campaign with their times: the losses that they explain, and the delays of errors."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: time in which calls may fail after a worker was hit: the longest pause before another one is started
_PAUSE_SECONDS = 12.0
#: kind of a worker that is stopped and that the supervisor must notice
HUNG = "hung_worker"

#: a `lab.campaigns.load.Loss` as it arrives from another process
Loss = dict[str, Any]


@dataclass
class Hits:
    """The faults by pid, each pid with a history, since pids are reused. Times are of time.monotonic()."""

    _hit: dict[int, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    #: (start, end) of each time without a daemon
    _down: list[tuple[float, float]] = field(default_factory=list)

    def add(self, pid: int, kind: str, when: float | None = None) -> None:
        """Records a fault of a process."""
        self._hit[pid].append((time.monotonic() if when is None else when, kind))

    def down(self, start: float, end: float) -> None:
        """Records a time without a daemon."""
        self._down.append((start, end))

    def explain(self, loss: Loss) -> bool:
        """Returns whether a fault explains the loss."""
        end = loss["end"]
        if loss["code"] == "supervisor_died":
            return self.was_down(loss)
        pid = process_of(loss)
        if loss["code"] == "timeout":
            return self._last(pid, end)[1] == HUNG
        if loss["code"] != "worker_died":
            return False
        if pid:
            return bool(self._last(pid, end)[1])
        return any(when <= end < when + _PAUSE_SECONDS for hits in self._hit.values() for when, _ in hits)

    def was_down(self, wait: dict[str, Any]) -> bool:
        """Returns whether there was no daemon at some time of this wait."""
        return any(start <= wait["end"] and wait["start"] <= end for start, end in self._down)

    def delays(self, losses: Iterable[Loss]) -> dict[str, list[tuple[float, Loss]]]:
        """Returns the delay in ms of each loss, by the kind of process that died.

        A delay lasts from the death, or from the beginning of the wait if that came later, to the end of the
        wait. Several sequences of one wait count once.
        """
        found: dict[str, list[tuple[float, Loss]]] = {}
        for loss in {(loss["start"], loss["end"]): loss for loss in losses}.values():
            end = loss["end"]
            when, kind = self._last(process_of(loss), end)
            if loss["code"] == "supervisor_died":
                kind, when = "supervisor", max((at for at, _ in self._down if at <= end), default=0.0)
            if kind and kind != HUNG:
                found.setdefault(kind, []).append(((end - max(loss["start"], when)) * 1e3, loss))
        return found

    def _last(self, pid: int, end: float) -> tuple[float, str]:
        return max((hit for hit in self._hit.get(pid, []) if hit[0] <= end), default=(0.0, ""))


def process_of(loss: Loss) -> int:
    """Returns the pid that a loss is about; 0 if unknown."""
    named = re.search(r"\(pid (\d+)\)", loss["message"])
    return int(named[1]) if named else int(loss["pid"])
