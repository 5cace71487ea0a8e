"""What a campaign has hit and when: which losses follow from it, and how soon those who waited heard."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: after a worker was hit, calls may hear of it for so long: the longest pause before another is started
_PAUSE_SECONDS = 12.0
#: of one that is stopped and that the supervisor must find out about
HUNG = "hung_worker"

#: as `bench.campaigns.load.Loss` arrives from another process
Loss = dict[str, Any]


@dataclass
class Hits:
    """Numbers of processes come again, so each has a history. Times are of time.monotonic()."""

    _hit: dict[int, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    #: when there was no daemon
    _down: list[tuple[float, float]] = field(default_factory=list)

    def add(self, pid: int, kind: str, when: float | None = None) -> None:
        """`pid` is being hit."""
        self._hit[pid].append((time.monotonic() if when is None else when, kind))

    def down(self, start: float, end: float) -> None:
        """There was no daemon."""
        self._down.append((start, end))

    def explain(self, loss: Loss) -> bool:
        """Whether something that it needed had been hit."""
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
        """Whether there was no daemon at some time of this wait."""
        return any(start <= wait["end"] and wait["start"] <= end for start, end in self._down)

    def delays(self, losses: Iterable[Loss]) -> dict[str, list[tuple[float, Loss]]]:
        """By what died: milliseconds from the death, or from the wait's beginning if that came later, to the
        wait's end. Several sequences that were waited for together count once."""
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
    """That the loss is about; 0 if it does not say."""
    named = re.search(r"\(pid (\d+)\)", loss["message"])
    return int(named[1]) if named else int(loss["pid"])
