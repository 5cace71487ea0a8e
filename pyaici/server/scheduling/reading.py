"""Requests are read in threads: tokens of a long prompt take a second, and streams must not wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from pyaici.server.http.errors import bad_request
from pyaici.server.scheduling.queues import FairTurns, WaitingLimits

if TYPE_CHECKING:
    from pyaici.server.http.users import User
    from pyaici.server.settings import ServerSettings


Result = TypeVar("Result")
#: requests that are read at the same time: the engine and the controllers need the cores, too
_THREADS = 2


class Reading:
    """Makes of bodies what the engine takes: tokens, grammars, arguments. Callers take turns."""

    def __init__(self, settings: ServerSettings) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reading")
        self._turns = FairTurns(_THREADS, WaitingLimits.before_streams(settings), each=1)
        # parsing holds the interpreter's lock: two threads would only make the event loop wait for both
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._parser_turns = FairTurns(1, WaitingLimits.before_streams(settings), each=1)

    async def read(self, user: User, work: Callable[[], Result]) -> Result:
        """What comes of `work`, which must not touch what belongs to the event loop.

        Raises what it raises, and ApiError where too many wait already, or where the body goes so deep that
        whatever follows it comes to an end.
        """
        try:
            return await self._turns.run(user.caller, self._threads, work)
        except RecursionError:
            raise bad_request("the body has too many values within each other") from None

    async def parse(self, user: User, work: Callable[[], Result]) -> Result:
        """Does `work`, which parses a large body, in a thread; one body is parsed at a time.

        Raises what it raises, and ApiError if too many bodies wait already.
        """
        return await self._parser_turns.run(user.caller, self._parser, lambda: self._parse(work))

    def _parse(self, work: Callable[[], Result]) -> Result:
        """Does `work`; then the thread rests for as long, which leaves half of the time to others."""
        start = time.perf_counter()
        try:
            return work()
        finally:
            with contextlib.suppress(RuntimeError):  # the server ends
                self._parser.submit(time.sleep, time.perf_counter() - start)

    def close(self) -> None:
        """Nothing more is read."""
        for threads in (self._threads, self._parser):
            threads.shutdown(wait=False, cancel_futures=True)
