"""Named semaphores that wake a process which has work waiting.

A doorbell says only "look": who rings posts once, who wakes forgets all rings so far and then
looks at everything that may hold work. No count is ever relied upon.
"""

from __future__ import annotations

import contextlib

import posix_ipc

from aicirt.errors import SpaceError
from aicirt.ipc import names
from aicirt.ipc.semaphore import Semaphore
from aicirt.shortage import describe

#: that are forgotten at a time: more would only wake the waiter once more
_MOST_RINGS = 1 << 16


class Doorbell:
    """One named POSIX semaphore."""

    __slots__ = ("_owner", "_semaphore", "name")

    def __init__(self, semaphore: Semaphore, name: str, owner: bool) -> None:
        self._semaphore = semaphore
        self._owner = owner
        self.name = name

    @classmethod
    def create(cls) -> Doorbell:
        """A new one with a fresh name, accessible to this user only. Raises SpaceError."""
        name = names.fresh_name()
        try:
            semaphore = Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0)
        except (OSError, posix_ipc.Error) as error:
            raise SpaceError(
                f"no semaphore can be made in /dev/shm (containers: --shm-size): {describe(error)}"
            ) from error
        return cls(semaphore, name, owner=True)

    @classmethod
    def open(cls, name: str) -> Doorbell:
        """An existing one. Raises posix_ipc.ExistentialError if the name is gone."""
        return cls(Semaphore(name), name, owner=False)

    def ring(self) -> None:
        """Wakes the waiter."""
        with contextlib.suppress(OSError, ValueError, posix_ipc.Error):  # it has been rung 2^31 times
            self._semaphore.release()

    @property
    def rung(self) -> bool:
        """Somebody has rung and nobody has waited since."""
        return bool(self._semaphore.value)

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds (0 = do not wait); True if it was rung, however often.

        A bell has one waiter.
        """
        semaphore = self._semaphore
        try:
            semaphore.acquire(timeout)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        for _ in range(_MOST_RINGS):  # whoever rings without end shall not keep us here
            if not semaphore.value:  # costs nothing; an attempt in vain would raise
                break
            semaphore.acquire(0)
        return True

    def unlink(self) -> None:
        """Removes the name; processes that have it open are not affected."""
        names.unlink_semaphore(self.name)

    def close(self) -> None:
        """Closes it, and removes the name if this process made it."""
        self._semaphore.close()
        if self._owner:
            self.unlink()
