"""Frees the memory of closed guests in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue

from aicirt.errors import RuntimeFailure
from aicirt.wasm import raw

#: A guest with less memory is freed by whoever closes it, in less than 0.2 ms; telling the thread takes 0.02.
LEAST_BYTES = 4 << 20


class Reaper:
    """Unmapping the memory of one guest takes the kernel up to 4 ms for 64 MiB.

    A user can end many such guests at once; the sequences of others would wait for all of them.
    """

    def __init__(self) -> None:
        self._stores: SimpleQueue[int | threading.Event | None] = SimpleQueue()
        #: bytes of each store that is not yet freed, oldest first
        self._sizes: deque[int] = deque()
        self._thread: threading.Thread | None = None

    @property
    def pending_bytes(self) -> int:
        """Memory of guests that are closed and not yet freed, at most."""
        return sum(tuple(self._sizes))

    def start(self) -> None:
        """Raises RuntimeFailure if there can be no thread."""
        self._thread = threading.Thread(target=self._run, name="reaper", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise RuntimeFailure("a worker cannot start: no thread is left (ulimit -u, -i)") from error

    def free(self, store: int, nbytes: int) -> None:
        """Frees a wasmtime store soon. Nothing may use it any more."""
        self._sizes.append(nbytes)
        self._stores.put(store)

    def drain(self) -> None:
        """Returns when all that was to be freed before this call is free."""
        done = threading.Event()
        self._stores.put(done)
        done.wait()

    def stop(self) -> None:
        """Frees what is left and ends the thread."""
        if self._thread is not None:
            self._stores.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._stores.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
            else:
                raw.store_delete_unlocked(job)
                self._sizes.popleft()
