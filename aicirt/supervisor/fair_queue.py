"""A fair queue: owners take turns at scarce resources, such as compilation and the builder."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aicirt.contract.errors import OwnerLimitError
from aicirt.settings import DaemonSettings
from aicirt.system.turns import Turns

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

    def drop_old_usage(self, now: float) -> None:
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
    """Limits the turns under way, and gives them out owner by owner: see `Turns`.

    Among owners with as many turns under way, the next is for the one who has used the least CPU time within
    an hour.
    """

    def __init__(self, limits: QueueLimits, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._limits = limits
        self._clock = clock
        #: turns that did not start at once
        self.counters: Counter[str] = Counter()
        self._used: dict[str, _Usage] = {}
        # with a limit of 0 no turn would ever start
        self._turns = Turns(max(1, limits.running), max(1, limits.owner_running), used=self._used_by)

    @asynccontextmanager
    async def turn(self, owner: str, nbytes: int = 0) -> AsyncIterator[Callable[[float], None]]:
        """Waits for a turn and holds it during the block. Yields a function to charge CPU seconds.

        `nbytes`: bytes held in memory until the turn comes. Raises OwnerLimitError if the owner has used up
        their CPU time, or has too much waiting.
        """
        self._check(owner)
        if not self._turns.free_for(owner):
            self._check_room(owner, nbytes)
            self.counters[f"{self._limits.name}_waited"] += 1
        await self._turns.enter(owner, nbytes)
        try:
            self._check(owner)  # earlier turns may have used up the time
            yield partial(self._spend, owner)
        finally:
            self._turns.leave(owner)

    def count_turns(self) -> dict[str, int]:
        """Returns how many turns are under way and how many are waiting."""
        return {"running": self._turns.held.total(), "waiting": self._turns.waiting()[0]}

    def _used_by(self, owner: str) -> float:
        used = self._used.get(owner)
        return 0.0 if used is None else used.total

    def _check(self, owner: str) -> None:
        usage, now, (limit, name) = self._used.get(owner), self._clock(), self._limits.owner_cpu_s
        if usage is None:
            return
        usage.drop_old_usage(now)
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

    def _check_room(self, owner: str, nbytes: int) -> None:
        """Raises OwnerLimitError if the owner has too much waiting already."""
        limits, (waiting, held) = self._limits, self._turns.waiting(owner)
        for number, what, (limit, name) in (
            (waiting + 1, limits.name, limits.owner_waiting),
            (held + nbytes, f"bytes of {limits.name}", limits.owner_waiting_bytes),
        ):
            if number > limit:
                raise OwnerLimitError(
                    f"{number} {what} would wait for owner {owner!r}; the limit is {limit} ({name}): "
                    f"{limits.cure}",
                    limit=limit,
                )


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
