"""Turns at a limited number of places, for asyncio: an owner with much work delays only their own."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable


class Turns:
    """Shares places among owners.

    A free place goes to the owner who holds the fewest, among equals to the one who has `used` the least,
    then to the one who has waited longest. The turns of one owner come in order. With `reserved`, so many
    places are only for owners who hold none: running work is never ended in favour of others, so a new owner
    finds a free place only if no other owner can take all of them.
    """

    def __init__(
        self,
        places: int,
        each: int | None = None,
        *,
        reserved: int = 0,
        used: Callable[[str], float] = lambda owner: 0.0,
    ) -> None:
        """`each`: places that one owner may hold at a time; None = all."""
        self._free = places
        self._each = places if each is None else each
        self._reserved = reserved
        self._used = used
        #: places held, by owner
        self.held: Counter[str] = Counter()
        #: by owner, the one who has waited longest first: waiting turns, each with the bytes that it holds
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()

    def free_for(self, owner: str) -> bool:
        """Returns whether the owner can have a place now. Then no turn of theirs is waiting."""
        held = self.held[owner]
        if not held and len(self.held) <= self._reserved:
            return True  # places that others have taken anyway do not count
        return held < self._each and self._free > (self._reserved if held else 0)

    def waiting(self, owner: str | None = None) -> tuple[int, int]:
        """Returns how many turns are waiting, of an owner or of all, and how many bytes they hold."""
        queues = self._waiting.values() if owner is None else [self._waiting.get(owner, ())]
        held = [nbytes for turns in queues for _, nbytes in turns]
        return len(held), sum(held)

    async def enter(self, owner: str, nbytes: int = 0) -> None:
        """Takes a place, or waits for one; `leave` gives it back. `nbytes`: memory held meanwhile."""
        if self.free_for(owner):
            self.enter_anyway(owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((turn, nbytes))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            elif turn.exception() is None:  # the turn came just before the cancellation
                self.leave(owner)
            raise

    def leave(self, owner: str) -> None:
        """Gives a place back, to a turn that waits if there is one."""
        self._free += 1
        self.held[owner] -= 1
        if not self.held[owner]:
            del self.held[owner]
        while able := [waiting for waiting in self._waiting if self.free_for(waiting)]:
            chosen = min(able, key=lambda owner: (self.held[owner], self._used(owner)))
            turns = self._waiting[chosen]
            turn, _ = turns.popleft()
            self._waiting.move_to_end(chosen)
            if not turns:
                del self._waiting[chosen]
            if not turn.done():
                self.enter_anyway(chosen)
                turn.set_result(None)

    def refuse_all(self, why: Callable[[], Exception]) -> None:
        """Ends all waiting turns, each with the error that `why` returns."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for turns in waiting.values():
            for turn, _ in turns:
                if not turn.done():
                    turn.set_exception(why())

    def enter_anyway(self, owner: str) -> None:
        """Takes a place, even if none is free: others then wait until more have left."""
        self._free -= 1
        self.held[owner] += 1

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        left = deque(waiting for waiting in self._waiting.get(owner, ()) if waiting[0] is not turn)
        if left:
            self._waiting[owner] = left
        else:
            self._waiting.pop(owner, None)
