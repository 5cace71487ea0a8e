"""Who may start next where there is no room for all: callers take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyaici.server.errors import ApiError
    from pyaici.server.waiting_room import WaitingRoom


class Turns:
    """So many places, given out caller by caller: one who asks for much waits for himself only.

    First comes who has least under way, then who has waited longest; what one caller asks for is done in
    order.
    """

    def __init__(self, places: int, room: WaitingRoom, each: int | None = None) -> None:
        """`each`: places that one caller may have at the same time; None = all."""
        self._free = places
        self._each = places if each is None else each
        self._room = room
        self._why_closed: Callable[[], ApiError] | None = None
        #: places that callers have
        self._held: Counter[str] = Counter()
        #: by caller, in order; who has waited longest, since coming or since the last turn, is first
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Around what takes a place. Raises ApiError if there is none, and too many wait for one already."""
        if self._why_closed is not None:
            raise self._why_closed()
        # if a place is free, those who wait have as many as one may have
        if self._free and self._held[caller] < self._each:
            self._take(caller)
        else:
            with self._room.waiting(caller):
                await self._wait(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    def close(self, why: Callable[[], ApiError]) -> None:
        """There are no more turns, for those who wait and for whoever comes."""
        self._why_closed = why
        waiting, self._waiting = self._waiting, OrderedDict()
        for turns in waiting.values():
            for turn in turns:
                if not turn.done():
                    turn.set_exception(why())

    async def _wait(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(caller, turn)
            elif turn.exception() is None:  # it was given its turn a moment ago
                self._give_back(caller)
            raise

    def _forget(self, caller: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(caller)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[caller]

    def _take(self, caller: str) -> None:
        self._free -= 1
        self._held[caller] += 1

    def _give_back(self, caller: str) -> None:
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        self._next()

    def _next(self) -> None:
        """Lets those start for whom there is room."""
        while self._free:
            able = [caller for caller in self._waiting if self._held[caller] < self._each]
            if not able:
                return
            caller = min(able, key=self._held.__getitem__)
            turns = self._waiting[caller]
            turn = turns.popleft()
            self._waiting.move_to_end(caller)
            if not turns:
                del self._waiting[caller]
            if not turn.done():
                self._take(caller)
                turn.set_result(None)
