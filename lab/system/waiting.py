"""Waits in tests, which have no time limit of their own: pytest's is the only one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: seconds for calls that must be given a time limit: as long as pytest's own, which `scripts/test.sh` sets
PATIENCE = 600.0


class Door:
    """A function that returns once the test has opened the door."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self) -> str:
        self.reached.set()
        assert self._open.wait(PATIENCE)
        return "through"

    def open(self) -> None:
        """Lets everybody through."""
        self._open.set()


def wait_until(condition: Callable[[], object], pause: float = 0.01) -> None:
    """Waits until the condition is true. A test that waits in vain ends with pytest's own time limit.

    That limit shows where the test waits, and holds for all tests alike. A deadline of the test's own would
    only fail when the machine is slow.
    """
    while not condition():
        time.sleep(pause)
