"""Threads for blocking calls: each owner has its own, so that no owner waits for another's calls."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class OwnerThreads:
    """Runs the calls of each owner in order, a limited number of them at a time."""

    def __init__(self, each: int) -> None:
        """`each`: most threads of one owner. Threads end when the owner has no calls left."""
        self._each = each
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._running: Counter[str] = Counter()

    def submit(self, owner: str, call: Callable[[], Result]) -> Future[Result]:
        """Queues `call` for one of the owner's threads. Cancelling the future before it starts skips it."""
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append((future, call))
            begin = self._running[owner] < self._each
            self._running[owner] += begin
        if begin:
            threading.Thread(target=self._run, args=(owner,), name="aici", daemon=True).start()
        return future

    def close(self) -> None:
        """Cancels the calls that have not begun."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for future, _ in queue:
                future.cancel()

    def _run(self, owner: str) -> None:
        while (found := self._next(owner)) is not None:
            future, call = found
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)

    def _next(self, owner: str) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Returns the owner's next call, or None if there is none; the calling thread must then end."""
        with self._lock:
            if queue := self._waiting.get(owner):
                return queue.popleft()
            self._waiting.pop(owner, None)
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            return None
