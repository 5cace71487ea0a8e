"""Keeps the event loop free: runs calls and reads requests in threads.

Tokenizing a long prompt takes a second, and must not delay streams.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from aicirt.system.threads import Result, in_thread
from pyaici.client.control import abandoned
from pyaici.server.http.errors import bad_request
from pyaici.server.scheduling.queues import FairTurns, WaitingLimits

if TYPE_CHECKING:
    from pyaici.server.http.users import User
    from pyaici.server.settings import ServerSettings


async def in_own_thread(call: Callable[[], Result]) -> Result:
    """Returns or raises what `call` does, as `in_thread`.

    Cancelling this coroutine also cancels the request that `call` has sent to aicirt.
    """
    left = threading.Event()

    def work() -> Result:
        abandoned.set(left)  # each thread has its own context
        return call()

    return await in_thread(work, left.set)


#: requests that are read at the same time; the engine and the controllers need cores, too
_THREADS = 2


class Reading:
    """Turns request bodies into input for the engine: tokens, grammars, arguments. Callers take turns."""

    def __init__(self, settings: ServerSettings) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reading")
        self._turns = FairTurns(_THREADS, WaitingLimits.before_streams(settings), each=1)
        # parsing holds the interpreter's lock: with two threads, the event loop would wait for both
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._parser_turns = FairTurns(1, WaitingLimits.before_streams(settings), each=1)

    async def read(self, user: User, work: Callable[[], Result]) -> Result:
        """Returns `work()`, called in a thread; `work` must not use objects of the event loop.

        Raises what `work` raises. Raises ApiError if too many requests wait already, or if the body is nested
        so deeply that reading it ends in a RecursionError.
        """
        try:
            return await self._turns.run(user.caller, self._threads, work)
        except RecursionError:
            raise bad_request("the body is nested too deeply") from None

    async def parse(self, user: User, work: Callable[[], Result]) -> Result:
        """Returns `work()`, which parses a large body, called in a thread; one body is parsed at a time.

        Raises what `work` raises, and ApiError if too many bodies wait already.
        """
        return await self._parser_turns.run(user.caller, self._parser, lambda: self._parse(work))

    def _parse(self, work: Callable[[], Result]) -> Result:
        """Calls `work`, then lets the thread sleep for as long: half of the time is for other threads."""
        start = time.perf_counter()
        try:
            return work()
        finally:
            with contextlib.suppress(RuntimeError):  # the server is shutting down
                self._parser.submit(time.sleep, time.perf_counter() - start)

    def close(self) -> None:
        """Shuts the threads down; nothing more is read."""
        for threads in (self._threads, self._parser):
            threads.shutdown(wait=False, cancel_futures=True)
