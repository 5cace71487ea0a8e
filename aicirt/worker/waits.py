"""Sequences that wait: for a write to a variable, for the answer to a call, for a time.

A waiting sequence costs nothing: its controller is not called, and an engine that has been told leaves it out
of its steps until `Woken` names it.
"""

from __future__ import annotations

import heapq
import itertools
import time
from typing import NamedTuple, Protocol

from aicirt.contract.abi import FOLLOWS
from aicirt.contract.errors import AiciError, DeadlockError


class Condition(NamedTuple):
    """A variable that a sequence waits for: until its version is above this one."""

    name: bytes
    version: int


class Waiting(NamedTuple):
    """A wait of a sequence: one of the conditions is enough."""

    conditions: list[Condition]
    #: `time.monotonic` after which it waits no longer; None: for ever
    until: float | None


class WatchedVariables(Protocol):
    """The variables of a request (`aicirt.worker.owners.Variables`)."""

    #: sequences that wait for a write, by the name of the variable
    watchers: dict[bytes, dict[Waiter, None]]

    def version(self, name: bytes) -> int:
        """Returns the version of a variable, 0 if it is missing."""

    def set(self, name: bytes, value: bytes, when_version: int | None) -> int:
        """Sets a variable; returns its new version."""


class Waiters(Protocol):
    """The sequences of a request (`aicirt.worker.owners.RequestState`)."""

    #: number of live sequences, those that wait, and those that wait no longer, for the client
    live: int
    parked: dict[Waiter, None]
    woken: list[int]

    @property
    def variables(self) -> WatchedVariables:
        """The variables that they share."""

    @property
    def stuck(self) -> bool:
        """Whether no answer is to come, and no waiting sequence waits for a time."""


class Waiter(Protocol):
    """A sequence that may wait (`aicirt.worker.sequence.Sequence`)."""

    id: int
    waiting: Waiting | None

    @property
    def request(self) -> Waiters:
        """The request that it belongs to."""

    def end(self, error: AiciError) -> None:
        """Ends it with an error."""


#: a sequence that waits until a time (`time.monotonic`); the number keeps them in order
_Timer = tuple[float, int, Waiter, Waiting]
#: timers of waits that have ended, beyond as many as are needed
_SPARE = 64


def _is_due(timer: _Timer) -> bool:
    """Returns whether the wait that the timer belongs to goes on."""
    _, _, seq, waiting = timer
    return seq.waiting is waiting


class Waits:
    """The waiting sequences of a worker."""

    def __init__(self) -> None:
        #: the next one first; some may be of waits that have ended
        self.timers: list[_Timer] = []
        #: whether clients have to be told of sequences that wait no longer
        self.woken = False
        self._order = itertools.count()
        #: waiting sequences that wait for a time; the other timers are of waits that have ended
        self._timed = 0
        #: requests whose sequences may all wait for something that can no longer happen
        self.suspects: dict[Waiters, None] = {}

    def park(self, seq: Waiter, waiting: Waiting) -> bool:
        """Has a sequence wait; returns False if a condition holds already, or if there are none."""
        variables = seq.request.variables
        if not waiting.conditions and waiting.until is None:
            return False
        if any(variables.version(name) > version for name, version in waiting.conditions):
            return False
        seq.waiting = waiting
        seq.request.parked[seq] = None
        for name, _ in waiting.conditions:
            variables.watchers.setdefault(name, {})[seq] = None
        if waiting.until is not None:
            if len(self.timers) > 2 * self._timed + _SPARE:  # most are of waits that have ended
                self.timers = [entry for entry in self.timers if _is_due(entry)]
                heapq.heapify(self.timers)
            heapq.heappush(self.timers, (waiting.until, next(self._order), seq, waiting))
            self._timed += 1
        self.suspect(seq.request)
        return True

    def begin_following(self, seq: Waiter) -> None:
        """Has a sequence follow another one until that ends, which it tells its request by a variable."""
        seq.waiting = Waiting([], None)
        seq.request.parked[seq] = None
        seq.request.variables.set(FOLLOWS + str(seq.id).encode(), b"", None)
        self.suspect(seq.request)  # the leader may wait for something else

    def end(self, seq: Waiter) -> None:
        """Ends the wait of a sequence, if it waits; without telling the engine."""
        if (waiting := seq.waiting) is None:
            return
        seq.waiting = None
        self._timed -= waiting.until is not None
        seq.request.parked.pop(seq, None)
        watchers = seq.request.variables.watchers
        for name, _ in waiting.conditions:
            if (watching := watchers.get(name)) is not None:
                watching.pop(seq, None)
                if not watching:
                    del watchers[name]

    def wake(self, seq: Waiter) -> None:
        """Ends the wait of a sequence; the engine will be told."""
        if seq.waiting is not None:
            self.end(seq)
            seq.request.woken.append(seq.id)
            self.woken = True

    def pass_time(self) -> None:
        """Wakes the sequences whose time has come."""
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            entry = heapq.heappop(self.timers)
            if _is_due(entry):
                self.wake(entry[2])

    def suspect(self, request: Waiters) -> None:
        """Has `settle` look whether the request can still go on."""
        if request.parked:
            self.suspects[request] = None

    def settle(self) -> None:
        """Ends requests all of whose sequences wait, though nothing is under way that could wake one."""
        while self.suspects:
            request, _ = self.suspects.popitem()
            if len(request.parked) < request.live or not request.stuck:
                continue
            count = len(request.parked)
            who = "the only sequence waits" if count == 1 else f"all {count} sequences wait"
            for seq in list(request.parked):
                seq.end(
                    DeadlockError(
                        f"{who}, and no call is under way: does the request wait for a variable that no fork "
                        "writes, or whose fork has ended with an error?"
                    )
                )
