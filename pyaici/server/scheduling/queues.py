"""Bounded queues in which callers take turns when there are not enough places."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from aicirt.contract.errors import counted
from aicirt.system.turns import Turns
from pyaici.server.http.errors import busy, too_many

if TYPE_CHECKING:
    from pyaici.server.http.errors import ApiError
    from pyaici.server.settings import ServerSettings


class WaitingLimits:
    """Limits how many requests wait, in total and for each caller, which bounds their memory.

    A request beyond the limit is refused with an error that asks the client to retry.
    """

    def __init__(self, most: int, each: int) -> None:
        """Allows `most` waiting requests in total, and `each` for one caller."""
        self._most = most
        self._each = each
        self._waiting: Counter[str] = Counter()

    @classmethod
    def for_streams(cls, settings: ServerSettings) -> Self:
        """Returns the limits for requests that are ready to generate."""
        return cls(settings.max_waiting, settings.max_waiting_each)

    @classmethod
    def before_streams(cls, settings: ServerSettings) -> Self:
        """Returns the limits for requests that are not ready to generate yet.

        The limits are those of waiting requests plus `max_streams`.
        """
        streams = settings.max_streams
        return cls(settings.max_waiting + streams, settings.max_waiting_each + streams)

    def __len__(self) -> int:
        """Returns how many requests wait."""
        return self._waiting.total()

    @contextmanager
    def waiting(self, caller: str) -> Iterator[None]:
        """Counts a request as waiting inside the block.

        Raises ApiError: 429 if this caller has too many waiting requests, 503 if all callers together have.
        """
        own, total = self._waiting[caller], len(self)
        if own >= self._each:
            raise too_many(
                f"you have {counted(own, 'waiting request')} already: try again when some have been answered"
            )
        if total >= self._most:
            raise busy(f"there are {counted(total, 'waiting request')} already: try again later")
        self._waiting[caller] += 1
        try:
            yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]


class Parking:
    """The requests that have given their places to others while their controllers wait for something."""

    def __init__(self, most: int = 0, each: int = 0) -> None:
        """Has room for `most` requests, and for `each` of one caller."""
        self._most = most
        self._each = each
        self._parked: Counter[str] = Counter()

    def enter(self, caller: str) -> bool:
        """Adds a request, if there is room."""
        room = self._parked[caller] < self._each and self._parked.total() < self._most
        self._parked[caller] += room
        return room

    def leave(self, caller: str) -> None:
        """Removes a request."""
        self._parked[caller] -= 1
        if not self._parked[caller]:
            del self._parked[caller]


class Turn:
    """The place of a running request."""

    def __init__(self, turns: Turns, parking: Parking, caller: str) -> None:
        self._turns, self._parking, self._caller = turns, parking, caller
        self._held = True

    def step_aside(self, parked: bool) -> None:
        """Gives the place to others, if there is room to wait; or takes it again, without waiting."""
        if parked and self._held and self._parking.enter(self._caller):
            self._held = False
            self._turns.leave(self._caller)
        elif not parked and not self._held:
            self._held = True
            self._parking.leave(self._caller)
            self._turns.enter_anyway(self._caller)

    def end(self) -> None:
        """Gives the place back when the request has ended."""
        (self._turns if self._held else self._parking).leave(self._caller)


Result = TypeVar("Result")
#: One place in `_RESERVE` is kept for callers that hold none; with fewer places than `_FEW`, none.
_RESERVE, _FEW = 8, 4


class FairTurns:
    """Shares places among callers, see `Turns`, within limits of how many requests wait."""

    def __init__(
        self, places: int, room: WaitingLimits, each: int | None = None, parking: Parking | None = None
    ) -> None:
        """Shares out `places`; `room` limits the waiting requests.

        `each`: places that one caller may hold at the same time; None = all. `parking`: where requests wait
        that have begun, without a place; None = nowhere.
        """
        self._parking = parking or Parking()
        self._turns = Turns(places, each, reserved=max(1, places // _RESERVE) if places >= _FEW else 0)
        self._room = room
        self._why_closed: Callable[[], ApiError] | None = None

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[Turn]:
        """Holds a place inside the block. Raises ApiError if no place is free and too many wait already."""
        await self._enter(caller)
        turn = Turn(self._turns, self._parking, caller)
        try:
            yield turn
        finally:
            turn.end()

    async def run(self, caller: str, threads: Executor, work: Callable[[], Result]) -> Result:
        """Takes a place and calls `work` in a thread. Raises what `work` raises, and ApiError as `turn` does.

        The place becomes free when the work has ended, even if the caller has stopped waiting. So a client
        that disconnects early cannot start more work than one that waits.
        """
        await self._enter(caller)
        loop = asyncio.get_running_loop()

        def ended(_: Future[Result]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has been closed
                loop.call_soon_threadsafe(self._turns.leave, caller)

        try:
            future = threads.submit(work)
        except BaseException:
            self._turns.leave(caller)
            raise
        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    async def _enter(self, caller: str) -> None:
        if self._why_closed is not None:
            raise self._why_closed()
        if self._turns.free_for(caller):
            await self._turns.enter(caller)
        else:
            with self._room.waiting(caller):
                await self._turns.enter(caller)

    def close(self, why: Callable[[], ApiError]) -> None:
        """Gives out no more turns: waiting requests and new ones get the error that `why` returns."""
        self._why_closed = why
        self._turns.refuse_all(why)
