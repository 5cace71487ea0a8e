"""Time of one step by owner: who has had as much as one may, and waits for the next step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aicirt.wasm.limits import TICK_MS

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner, Owners

#: a call that takes longer has been looked at, and is charged what it was found to use
_LOOKED_AT_NS = int(2 * TICK_MS * 1e6)


def used_time(since_ns: int, now_ns: int, charged_ns: int) -> int:
    """What a call, or two in a row, have used in ns, by `time.monotonic_ns` before and after.

    Of a long one only what it was `charged_ns` on the thread's clock, and what comes before the first look at
    that: on the other clock others run too.
    """
    used = now_ns - since_ns
    return used if used < _LOOKED_AT_NS else min(used, charged_ns + _LOOKED_AT_NS)


class StepShares:
    """What each owner has used of a part of a step for which others wait.

    An owner that has used its share gets no more, unless nobody else has sequences in this worker; and nobody
    does after a time on the clock that is far beyond any share, so that the worker answers whoever else asks.
    """

    __slots__ = ("_limit_ns", "_spent", "over_at", "shared")

    def __init__(self, owners: Owners, limit_ms: float, most_ms: float) -> None:
        """`limit_ms` is the CPU time of one owner, `most_ms` the time on the clock of all together."""
        #: whether there is more than one owner: else `has_time` and `charge` need not be called
        self.shared = len(owners) > 1
        #: when (`time.monotonic_ns`) no call may begin any more
        self.over_at = time.monotonic_ns() + int(most_ms * 1e6)
        self._limit_ns = int(limit_ms * 1e6)
        self._spent: dict[Owner | None, int] = {}

    def has_time(self, owner: Owner | None) -> bool:
        """Whether `owner` has a part of its share left."""
        return self._spent.get(owner, 0) < self._limit_ns

    def charge(self, owner: Owner | None, used_ns: int) -> None:
        """Counts what a call has used."""
        self._spent[owner] = self._spent.get(owner, 0) + used_ns

    def take_debts(self, owners: Owners) -> None:
        """Charges what owners have used beyond their share in earlier steps."""
        for owner in owners.in_debt:
            self._spent[owner] = owner.debt_ns

    def leave_debts(self, owners: Owners) -> None:
        """Keeps what owners have used beyond their share, for the next steps."""
        owners.in_debt.clear()
        for owner, spent in self._spent.items():
            if owner is not None and spent > self._limit_ns:
                owner.debt_ns = spent - self._limit_ns
                owners.in_debt.append(owner)
