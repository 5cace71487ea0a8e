"""Requests are read in threads: tokens of a long prompt take a second, and streams must not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from pyaici.server.errors import bad_request
from pyaici.server.turns import Turns
from pyaici.server.waiting_room import WaitingRoom

if TYPE_CHECKING:
    from pyaici.server.settings import ServerSettings
    from pyaici.server.users import User

Result = TypeVar("Result")
#: requests that are read at the same time: the engine and the controllers need the cores, too
_THREADS = 2


class Reading:
    """Makes of bodies what the engine takes: tokens, grammars, arguments. Callers take turns."""

    def __init__(self, settings: ServerSettings) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reading")
        self._turns = Turns(_THREADS, WaitingRoom.before_streams(settings), each=1)

    async def read(self, user: User, work: Callable[[], Result]) -> Result:
        """What comes of `work`, which must not touch what belongs to the event loop.

        Raises what it raises, and ApiError where too many wait already, or where the body goes so deep that
        whatever follows it comes to an end.
        """
        async with self._turns.turn(user.caller):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
            except RecursionError:
                raise bad_request("the body has too many values within each other") from None

    def close(self) -> None:
        """Nothing more is read."""
        self._threads.shutdown(wait=False, cancel_futures=True)
