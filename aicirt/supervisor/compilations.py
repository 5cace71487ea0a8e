"""Who may compile when: owners take turns, and each has so much CPU time an hour."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from aicirt.errors import OwnerLimitError
from aicirt.settings import DaemonSettings

_HOUR = 3600.0


class Compilations:
    """Everything that is compiled for clients, the images of vocabularies too.

    Who waits is served owner by owner, so that one who uploads much waits for himself only.
    """

    def __init__(self, settings: DaemonSettings, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._settings = settings
        self._clock = clock
        self._running: Counter[str] = Counter()
        #: compilations that did not begin at once
        self.counters: Counter[str] = Counter()
        #: the next owner first
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        #: by owner: when a compilation ended, and its seconds of CPU time
        self._spent: dict[str, deque[tuple[float, float]]] = {}

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[Callable[[float], None]]:
        """Around a compilation, which tells what it gets the seconds of CPU time that it took.

        Raises OwnerLimitError if the owner has none left, or too many waiting.
        """
        self._check(owner)
        await self._wait(owner)
        try:
            self._check(owner)  # those before it have used some
            yield partial(self._spend, owner)
        finally:
            self._running[owner] -= 1
            self._running += Counter()  # forgets those who have none
            self._next()

    def stats(self) -> dict[str, int]:
        """How many are at work, and wait."""
        return {
            "running": self._running.total(),
            "waiting": sum(len(waiters) for waiters in self._waiting.values()),
        }

    def _check(self, owner: str) -> None:
        spent, now, limit = self._spent.get(owner), self._clock(), self._settings.owner_compile_s
        if spent is None:
            return
        while spent and spent[0][0] <= now - _HOUR:
            spent.popleft()
        if not spent:
            del self._spent[owner]
            return
        total = sum(seconds for _, seconds in spent)
        if total < limit:
            return
        left, soon = total, 0.0
        for when, seconds in spent:
            left -= seconds
            soon = when + _HOUR - now
            if left < limit:
                break
        raise OwnerLimitError(
            f"compiling for owner {owner!r} has taken {total:.1f} s of CPU time within an hour; the limit is "
            f"{limit} (owner_compile_s): there is time again in {math.ceil(soon / 60)} minutes. Modules and "
            "vocabularies that are known cost nothing",
            limit=limit,
        )

    def _spend(self, owner: str, seconds: float) -> None:
        now = self._clock()
        self._spent.setdefault(owner, deque()).append((now, seconds))
        self._spent = {who: spent for who, spent in self._spent.items() if spent[-1][0] > now - _HOUR}

    async def _wait(self, owner: str) -> None:
        waiters = self._waiting.get(owner, ())
        limit = self._settings.owner_queue
        if len(waiters) >= limit and not self._may_start(owner):
            raise OwnerLimitError(
                f"{len(waiters)} compilations wait for owner {owner!r} already; the limit is {limit} "
                "(owner_queue): upload one after the other",
                limit=limit,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._next()
        if not turn.done():
            self.counters["compilations_waited"] += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            else:  # it was given its turn a moment ago
                self._running[owner] -= 1
                self._next()
            raise

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(owner)
        if waiters is not None and turn in waiters:
            waiters.remove(turn)
            if not waiters:
                del self._waiting[owner]

    def _may_start(self, owner: str) -> bool:
        settings = self._settings
        # with none nobody would ever have a turn
        return self._running.total() < max(1, settings.max_compilations) and self._running[owner] < max(
            1, settings.owner_compilations
        )

    def _next(self) -> None:
        """Lets those start for whom there is room: who has least at work first, then who has waited long."""
        while able := [owner for owner in self._waiting if self._may_start(owner)]:
            owner = min(able, key=self._running.__getitem__)
            waiters = self._waiting[owner]
            turn = waiters.popleft()
            self._waiting.move_to_end(owner)
            if not waiters:
                del self._waiting[owner]
            if not turn.done():
                self._running[owner] += 1
                turn.set_result(None)
