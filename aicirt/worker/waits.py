"""Calls of controllers, and sequences that wait: for the answer, for a write to a variable, for a time.

The worker passes a call on and goes on. The answer comes back as a variable of the request.

A waiting sequence costs nothing: its controller is not called, and an engine that has been told leaves it out
of its steps until `Woken` names it.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aicirt.contract.abi import CALL_RESULT, FOLLOWS
from aicirt.contract.errors import AiciError, CallLimitError, DeadlockError
from aicirt.settings import MAX_CALLS_BYTES, MAX_NEWS

if TYPE_CHECKING:
    from aicirt.settings import RequestLimits


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


#: what the supervisor learns: the request's number in this worker, the call's number, the token of the
#: request's offer, a name, and the arguments. The call 0 means that the request has ended
News = list[Any]


class RequestCalls:
    """The calls of one request. They have numbers from 1 in the order in which its sequences make them."""

    __slots__ = (
        "_charge",
        "_deliver",
        "_desk",
        "_limits",
        "_made",
        "_queue",
        "_queued_bytes",
        "number",
        "token",
        "under_way",
    )

    def __init__(
        self,
        desk: CallDesk,
        token: str,
        limits: RequestLimits,
        deliver: Callable[[bytes, bytes], None],
        charge: Callable[[int], None],
    ) -> None:
        """`token`: of the offer that says who answers. `deliver`: writes an answer to a variable.

        `charge`: counts bytes of waiting arguments for the owner; raises OwnerLimitError.
        """
        self._desk = desk
        self._deliver = deliver
        self._charge = charge
        self._limits = limits
        self._made = 0
        self._queue: deque[tuple[int, str, bytes]] = deque()
        self._queued_bytes = 0
        self.token = token
        self.number = desk.enter(self)
        #: calls that the supervisor has and has not answered
        self.under_way: set[int] = set()

    @property
    def pending(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self.under_way or self._queue)

    def make(self, name: str, arguments: bytes) -> int:
        """Makes a call and returns its number. Raises CallLimitError or OwnerLimitError.

        Beyond `calls_under_way` it waits for the end of another one.
        """
        limits = self._limits
        if self._made >= limits.max_calls:
            raise CallLimitError(
                f"the request has made {self._made} calls, which is the limit (max_calls)",
                limit=limits.max_calls,
            )
        waiting = self._queued_bytes + len(arguments)
        if waiting > limits.max_queued_call_bytes:
            raise CallLimitError(
                f"the arguments of calls that wait for others to end would take {waiting} bytes; the limit "
                f"is {limits.max_queued_call_bytes} (max_queued_call_bytes): await some before making more",
                limit=limits.max_queued_call_bytes,
            )
        self._charge(len(arguments))
        self._made += 1
        self._queue.append((self._made, name, arguments))
        self._queued_bytes = waiting
        self._send()
        return self._made

    def _send(self) -> None:
        while self._queue and len(self.under_way) < self._limits.calls_under_way:
            number, name, arguments = self._queue.popleft()
            self._queued_bytes -= len(arguments)
            self._charge(-len(arguments))
            self.under_way.add(number)
            self._desk.add([self.number, number, self.token, name, arguments])

    def arrive(self, number: int, result: bytes) -> None:
        """Records the answer to a call, as JSON; ignores one that nobody waits for."""
        if number in self.under_way:
            self.under_way.remove(number)
            self._send()  # first, so that the request does not seem stuck
            self._deliver(CALL_RESULT + str(number).encode(), result)

    def close(self) -> None:
        """Cancels all calls when the request has ended."""
        self._queue.clear()
        self._charge(-self._queued_bytes)
        self._desk.leave(self)


class CallDesk:
    """The calls of all requests in this worker, and the news for the supervisor."""

    def __init__(self) -> None:
        self._requests: dict[int, RequestCalls] = {}
        self._numbers = 0
        self.news: deque[News] = deque()
        #: sends news to the supervisor, which has asked for them; None until it asks
        self.listener: Callable[[list[News]], None] | None = None

    def enter(self, calls: RequestCalls) -> int:
        """Adds a request that may make calls; returns its number in this worker."""
        self._numbers += 1
        self._requests[self._numbers] = calls
        return self._numbers

    def leave(self, calls: RequestCalls) -> None:
        """Removes a request that has ended; the supervisor hears of it if calls are under way."""
        del self._requests[calls.number]
        if calls.under_way:
            self.add([calls.number, 0, calls.token, "", b""])

    def add(self, news: News) -> None:
        """Has the supervisor told as soon as it asks."""
        self.news.append(news)

    def report_news(self) -> None:
        """Reports the news to the supervisor, if there are any and it has asked."""
        if self.news and (listener := self.listener) is not None:
            self.listener = None
            told: list[News] = []
            size = 0
            while self.news and size <= MAX_CALLS_BYTES and len(told) < MAX_NEWS:
                told.append(self.news.popleft())
                size += len(told[-1][-1])
            listener(told)

    def pass_on(self, request: int, number: int, result: bytes) -> None:
        """Passes an answer of the supervisor on; the request may have ended meanwhile."""
        if (calls := self._requests.get(request)) is not None:
            calls.arrive(number, result)
