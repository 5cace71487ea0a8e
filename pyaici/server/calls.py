"""Calls that the controllers of requests make: offers to answer them, and the answers that clients post."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import INVALID_SPAN, Span

from aicirt.contract.errors import AiciError
from aicirt.system.logs import fields
from aicirt.system.terminal import printable
from pyaici.server.http.errors import ApiError, bad_request, from_aici
from pyaici.server.http.tracing import call_span, trace_parent
from pyaici.server.scheduling.streams import CallEnded, CallMade
from pyaici.server.scheduling.threads import in_own_thread

if TYPE_CHECKING:
    from pyaici.client.calls import CallEvent, Offer
    from pyaici.engines.engine import Event
    from pyaici.server.controller_store import ControllerStore
    from pyaici.server.http.middleware import Metrics
    from pyaici.server.http.users import User
    from pyaici.server.scheduling.streams import EngineStream

_log = logging.getLogger("aicirt.server.calls")


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that a client is to answer."""

    user: str
    offer: Offer


class RequestCalls:
    """The calls of one request, as events of its stream."""

    def __init__(self) -> None:
        self.token = ""
        #: calls under way: their names and when they were made, by id
        self.pending: dict[str, tuple[str, float]] = {}
        #: of the request's generation, for its calls
        self.span: Span = INVALID_SPAN
        self._stream: EngineStream | None = None
        self._early: list[Event] = []

    def show(self, event: Event) -> None:
        """Adds an event to the request's stream, as soon as it has one."""
        if self._stream is None:
            self._early.append(event)
        else:
            self._stream.add_events([event], None)

    def show_in(self, stream: EngineStream, span: Span) -> None:
        """Shows the events in this stream, also those that came before it, and traces calls in this span."""
        self._stream, self.span = stream, span
        if self._early:
            stream.add_events(self._early, None)


class Calls:
    """All calls under way of the server's requests."""

    def __init__(self, controllers: ControllerStore, metrics: Metrics) -> None:
        """Call it in the event loop that serves."""
        self._controllers = controllers
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, _Open] = {}

    @contextlib.asynccontextmanager
    async def of(
        self,
        described: Sequence[dict[str, Any]] | None,
        user: User,
        name: str = "",
        *,
        results: bool = False,
    ) -> AsyncIterator[RequestCalls]:
        """Lets the controller of a request make calls inside the block, unless `described` is None.

        `described`: the calls that its client answers; in addition, it may make those that the operator has
        allowed. `name`: of the run, for messages. `results`: events have the results of calls. Raises
        ApiError for an invalid description or name.
        """
        calls = RequestCalls()
        if described is None:
            yield calls
            return
        handle = partial(self._handle, calls, user)
        try:
            offer = await in_own_thread(
                partial(
                    self._controllers.answerer.offer,
                    described,
                    handle,
                    owner=user.owner,
                    watched=True,
                    name=name,
                    results=results,
                    trace=trace_parent(),
                )
            )
        except AiciError as error:
            raise from_aici(error, "calls") from None
        try:
            calls.token = offer.token
            yield calls
        finally:
            offer.close()
            for id, (_, since) in list(calls.pending.items()):
                self._end_call(calls, user, id, "cancelled", time.monotonic() - since, 0)
            for id in [id for id, entry in self._open.items() if entry.offer is offer]:
                del self._open[id]

    def _handle(self, calls: RequestCalls, user: User, offer: Offer, event: CallEvent) -> None:
        """Passes an event on to the event loop; called in a thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has been closed
            self._loop.call_soon_threadsafe(self._arrived, calls, user, offer, event)

    def _arrived(self, calls: RequestCalls, user: User, offer: Offer, event: CallEvent) -> None:
        if event.code is None:
            calls.pending[event.id] = event.name, time.monotonic()
            if event.mine:
                self._open[event.id] = _Open(user.owner, offer)
            made = CallMade(
                -1, -1, event.id, event.name, event.arguments.decode("utf-8", "replace"), event.mine
            )
            calls.show(made)
        else:
            self._open.pop(event.id, None)
            self._end_call(calls, user, event.id, event.code, event.seconds, event.result_bytes, event.result)

    def _end_call(
        self,
        calls: RequestCalls,
        user: User,
        id: str,
        code: str,
        seconds: float,
        nbytes: int,
        result: bytes = b"",
    ) -> None:
        """Shows, counts and logs the end of a call, once; never its arguments or its result."""
        if (pending := calls.pending.pop(id, None)) is None:
            return
        calls.show(CallEnded(-1, -1, id, code, seconds, nbytes, result.decode("utf-8", "replace")))
        if pending[0].startswith("aici."):  # of aicirt itself: a run may wait for a message for hours
            return
        outcome, ms = self._metrics.calls.count_call(code, seconds), 1000 * seconds
        # only the script knows the name of an unknown call
        name = "-" if code == "unknown_call" else printable(pending[0])
        call_span(calls.span, name, code, seconds)
        known = fields(call=name, outcome=outcome, ms=round(ms, 1), bytes=nbytes, user=user.name)
        what = (name, user.name, outcome, ms, nbytes)
        _log.info("call %s for %s: %s in %.0f ms, %d bytes", *what, extra=known)

    async def answer(self, id: str, user: User, value: Any, error: tuple[str, str] | None) -> None:
        """Answers a call of one of the user's requests. Raises ApiError if nobody waits for the answer."""
        entry = self._open.get(id)
        if entry is None or entry.user != user.owner:
            raise ApiError(
                404,
                "no call with this id waits for an answer: it has been answered, has taken too long, or its "
                "run has ended",
                code="unknown_call",
            )
        answering = partial(entry.offer.answer, id, value)
        if error is not None:
            answering = partial(entry.offer.refuse, id, *error)
        try:
            answered = await in_own_thread(answering)
        except ValueError:
            raise bad_request("the value has a number that JSON does not have", "value") from None
        if not answered:
            raise ApiError(404, "the call has been answered or cancelled meanwhile", code="unknown_call")

    async def send_message(self, name: str, user: User, value: Any) -> None:
        """Sends a message to the user's run of this name. Raises ApiError if there is none."""
        try:
            await in_own_thread(partial(self._controllers.answerer.send, name, value, user.owner))
        except AiciError as error:
            raise from_aici(error, "value") from None
        except ValueError:
            raise bad_request("the value has a number that JSON does not have", "value") from None
