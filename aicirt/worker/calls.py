"""Calls of controllers: those of each request, and what the supervisor has yet to hear about them.

The worker passes a call on and goes on. The answer comes back as a variable of the request, for which a
sequence can wait like for any other (`aicirt.worker.waits`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import CALL_RESULT
from aicirt.contract.errors import CallLimitError
from aicirt.settings import MAX_CALLS_BYTES, MAX_NEWS

if TYPE_CHECKING:
    from aicirt.settings import RequestLimits

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

    def tell(self) -> None:
        """Tells the supervisor the news, if there are any and it has asked."""
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
