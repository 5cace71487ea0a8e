"""A fair queue: owners take turns at scarce resources, such as compilation and the builder."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aicirt.contract.errors import OwnerLimitError
from aicirt.settings import DaemonSettings

_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits of a queue, and texts for its error messages."""

    #: the queue's name in counters and errors
    name: str
    #: turns at a time, in total and per owner
    running: int
    owner_running: int
    #: per owner: turns that wait, and bytes that they hold meanwhile; each with the name of the limit
    owner_waiting: tuple[int, str]
    owner_waiting_bytes: tuple[int, str]
    #: advice for an owner who exceeds a limit
    cure: str
    #: seconds of CPU time that one owner may use in an hour, with the name of the limit
    owner_cpu_s: tuple[float, str] = (math.inf, "")


class _Usage:
    """CPU seconds of one owner within the last hour."""

    __slots__ = ("spent", "total")

    def __init__(self) -> None:
        #: (start of a minute, CPU seconds used in it)
        self.spent: deque[tuple[float, float]] = deque()
        self.total = 0.0

    def add(self, now: float, seconds: float) -> None:
        """Adds CPU seconds that were used just now."""
        if self.spent and now - self.spent[-1][0] < _MINUTE:
            when, before = self.spent.pop()
            self.spent.append((when, before + seconds))
        else:
            self.spent.append((now, seconds))
        self.total += seconds

    def forget(self, now: float) -> None:
        """Drops usage that is more than an hour old."""
        while self.spent and self.spent[0][0] <= now - _HOUR:
            self.spent.popleft()
        self.total = sum(seconds for _, seconds in self.spent)

    def seconds_until(self, limit: float, now: float) -> float:
        """Returns the seconds until the usage within an hour falls below `limit`."""
        left = self.total
        soon = 0.0
        for when, seconds in self.spent:
            if left < limit:
                break
            left -= seconds
            soon = when + _HOUR - now
        return soon


class FairQueue:
    """Limits the turns under way and gives them out owner by owner: a heavy user delays only their own work.

    The next turn goes to the owner with the fewest turns under way. Among equals it goes to the owner who has
    used the least CPU time within an hour, then to the owner who has waited longest.
    """

    def __init__(self, limits: QueueLimits, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._limits = limits
        self._clock = clock
        self._running: Counter[str] = Counter()
        #: turns that did not start at once
        self.counters: Counter[str] = Counter()
        #: by owner, the next one first: waiting turns, each with the bytes that it holds meanwhile
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()
        self._used: dict[str, _Usage] = {}

    @asynccontextmanager
    async def turn(self, owner: str, nbytes: int = 0) -> AsyncIterator[Callable[[float], None]]:
        """Waits for a turn and holds it during the block. Yields a function to charge CPU seconds.

        `nbytes`: bytes held in memory until the turn comes. Raises OwnerLimitError if the owner has used up
        their CPU time, or has too much waiting.
        """
        self._check(owner)
        await self._wait(owner, nbytes)
        try:
            self._check(owner)  # earlier turns may have used up the time
            yield partial(self._spend, owner)
        finally:
            self._end(owner)

    def stats(self) -> dict[str, int]:
        """Returns how many turns are under way and how many are waiting."""
        return {
            "running": self._running.total(),
            "waiting": sum(len(waiters) for waiters in self._waiting.values()),
        }

    def _check(self, owner: str) -> None:
        usage, now, (limit, name) = self._used.get(owner), self._clock(), self._limits.owner_cpu_s
        if usage is None:
            return
        usage.forget(now)
        if usage.total < limit:
            return
        minutes = math.ceil(usage.seconds_until(limit, now) / _MINUTE)
        raise OwnerLimitError(
            f"{self._limits.name} for owner {owner!r} have used {usage.total:.1f} s of CPU time within an "
            f"hour; the limit is {limit} ({name}): try again in {minutes} minutes. Modules that are already "
            "stored need no compilation",
            limit=limit,
        )

    def _spend(self, owner: str, seconds: float) -> None:
        now = self._clock()
        self._used.setdefault(owner, _Usage()).add(now, seconds)
        self._used = {who: used for who, used in self._used.items() if used.spent[-1][0] > now - _HOUR}

    async def _wait(self, owner: str, nbytes: int) -> None:
        self._check_room(owner, nbytes)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((turn, nbytes))
        self._next()
        if not turn.done():
            self.counters[f"{self._limits.name}_waited"] += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            else:  # the turn was given just before the cancellation
                self._end(owner)
            raise

    def _check_room(self, owner: str, nbytes: int) -> None:
        """Raises OwnerLimitError if the owner has too much waiting already."""
        if self._may_start(owner):
            return
        limits, waiters = self._limits, self._waiting.get(owner, ())
        held = nbytes + sum(nbytes for _, nbytes in waiters)
        for number, what, (limit, name) in (
            (len(waiters) + 1, limits.name, limits.owner_waiting),
            (held, f"bytes of {limits.name}", limits.owner_waiting_bytes),
        ):
            if number > limit:
                raise OwnerLimitError(
                    f"{number} {what} would wait for owner {owner!r}; the limit is {limit} ({name}): "
                    f"{limits.cure}",
                    limit=limit,
                )

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(owner, deque())
        for waiter in waiters:
            if waiter[0] is turn:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiting[owner]
                return

    def _may_start(self, owner: str) -> bool:
        limits = self._limits
        # with a limit of 0 no turn would ever start
        return self._running.total() < max(1, limits.running) and self._running[owner] < max(
            1, limits.owner_running
        )

    def _end(self, owner: str) -> None:
        self._running[owner] -= 1
        self._running += Counter()  # drops owners with none
        self._next()

    def _rank(self, owner: str) -> tuple[int, float]:
        used = self._used.get(owner)
        return self._running[owner], 0.0 if used is None else used.total

    def _next(self) -> None:
        """Starts waiting turns while the limits allow it."""
        while able := [owner for owner in self._waiting if self._may_start(owner)]:
            owner = min(able, key=self._rank)
            waiters = self._waiting[owner]
            turn, _ = waiters.popleft()
            self._waiting.move_to_end(owner)
            if not waiters:
                del self._waiting[owner]
            if not turn.done():
                self._running[owner] += 1
                turn.set_result(None)


def compilations(settings: DaemonSettings, clock: Callable[[], float]) -> FairQueue:
    """Returns the queue for everything that is compiled for clients, including vocabulary images."""
    limits = QueueLimits(
        "compilations",
        settings.max_compilations,
        settings.owner_compilations,
        (settings.owner_queue, "owner_queue"),
        (settings.owner_queue_bytes, "owner_queue_bytes"),
        "upload one at a time",
        (settings.owner_compile_s, "owner_compile_s"),
    )
    return FairQueue(limits, clock)


def builds(settings: DaemonSettings, clock: Callable[[], float]) -> FairQueue:
    """Returns the builder's queue: start functions, `aici_arg` and `aici_init` of new arguments."""
    limits = QueueLimits(
        "builds",
        settings.max_builds,
        settings.owner_builds,
        (settings.owner_build_queue, "owner_build_queue"),
        (settings.owner_queue_bytes, "owner_queue_bytes"),
        "start fewer requests with new arguments at the same time",
    )
    return FairQueue(limits, clock)


def changes(settings: DaemonSettings, clock: Callable[[], float]) -> FairQueue:
    """Returns the queue for changes of the store: scripts, tags and removals, one at a time."""
    limits = QueueLimits(
        "changes",
        1,
        1,
        (settings.owner_queue, "owner_queue"),
        (settings.owner_queue_bytes, "owner_queue_bytes"),
        "send one after the other",
    )
    return FairQueue(limits, clock)
