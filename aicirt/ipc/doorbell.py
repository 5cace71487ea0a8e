"""Named semaphores that wake a process which has work waiting.

A doorbell says only "look": who rings posts once, who wakes drains it and then looks
at everything that may hold work. No count is ever relied upon.
"""

from __future__ import annotations

import posix_ipc

from aicirt.ipc import names


class Doorbell:
    """One named POSIX semaphore."""

    __slots__ = ("_owner", "_semaphore", "name")

    def __init__(self, semaphore: posix_ipc.Semaphore, name: str, owner: bool) -> None:
        self._semaphore = semaphore
        self._owner = owner
        self.name = name

    @classmethod
    def create(cls) -> Doorbell:
        """A new one with a fresh name, accessible to this user only."""
        name = names.fresh_name()
        semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0)
        return cls(semaphore, name, owner=True)

    @classmethod
    def open(cls, name: str) -> Doorbell:
        """An existing one. Raises posix_ipc.ExistentialError if the name is gone."""
        return cls(posix_ipc.Semaphore(name), name, owner=False)

    def ring(self) -> None:
        """Wakes the waiter."""
        self._semaphore.release()

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds (0 = do not wait); True if it was rung."""
        try:
            self._semaphore.acquire(timeout)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        return True

    def drain(self) -> None:
        """Forgets rings that have not been waited for."""
        while self.wait(0):
            pass

    def unlink(self) -> None:
        """Removes the name; processes that have it open are not affected."""
        names.unlink_semaphore(self.name)

    def close(self) -> None:
        """Closes it, and removes the name if this process made it."""
        self._semaphore.close()
        if self._owner:
            self.unlink()
