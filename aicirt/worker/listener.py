"""Ends the slice of a guest that runs for long as soon as somebody rings, not at the next tick."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from aicirt.errors import RuntimeFailure
from aicirt.ipc.cpu import current_cpu
from aicirt.ipc.doorbell import Doorbell
from aicirt.settings import IDLE_WAIT_SECONDS


class Listener:
    """A thread that waits at the bell while the worker runs guests; a bell has but one waiter at a time."""

    def __init__(self, bell: Doorbell, interrupt: Callable[[], object]) -> None:
        """Calls `interrupt` in its thread when it hears the bell."""
        self._bell = bell
        self._interrupt = interrupt
        #: the worker's own note: the thread was sent to the bell, and has not been seen back
        self._sent = False
        self._dismissed = False
        self._over = False
        # used as semaphores: whoever waits takes what the other one gives
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None
        #: where the worker is, and where the thread has gone for that
        self._wanted_cpu = self._cpu = -1

    def start(self) -> None:
        """Raises RuntimeFailure if there can be no thread."""
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise RuntimeFailure("a worker cannot start: no thread is left (ulimit -u, -i)") from error

    def listen(self) -> None:
        """Sends the thread to the bell, also if it has come back from there since the last time."""
        if self._sent and not self._back.acquire(False):
            return
        self._sent = True
        self._dismissed = False
        self._wanted_cpu = current_cpu()
        self._go.release()

    def dismiss(self) -> bool:
        """Calls the thread back: the worker will wait at the bell itself.

        True if it was there. It may have forgotten somebody's ring then: the worker must look at everything
        once more before it waits.
        """
        if not self._sent:
            return False
        self._sent = False
        if not self._back.acquire(False):
            self._dismissed = True
            self._bell.ring()
            self._back.acquire()
        return True

    def stop(self) -> None:
        """Ends the thread: the bell can be closed then."""
        self.dismiss()  # first: a thread that has not yet gone to the bell must not end on the way there
        self._over = True
        if self._thread is not None:
            self._go.release()
            self._thread.join()
            self._thread = None

    def _follow(self) -> None:
        """Moves this thread to the processor of the guest that it interrupts. On the one of whoever rings it
        would wait until that sleeps, and a client that needs the answer at once does not sleep yet."""
        if self._thread is not None and self._wanted_cpu != self._cpu:
            self._cpu = self._wanted_cpu
            os.sched_setaffinity(0, {self._cpu})

    def _run(self) -> None:
        while not self._over:
            self.attend()

    def attend(self) -> None:
        """What the thread does from one time that it is sent to the next."""
        self._go.acquire()
        if self._over:
            return
        self._follow()
        while not self._bell.wait(IDLE_WAIT_SECONDS):
            pass
        if not self._dismissed:
            self._interrupt()
        self._back.release()
