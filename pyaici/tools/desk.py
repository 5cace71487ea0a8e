"""Offers calls, and answers each in a task of its own, which ends when nobody waits for the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.system.turns import Turns
from pyaici.client.calls import CallError
from pyaici.tools.settings import MAX_ERROR, MAX_RESULT_BYTES

if TYPE_CHECKING:
    from pyaici.client.calls import Answerer, CallEvent, Offer

_log = logging.getLogger("aicirt.tools")

#: answers a call: gets its name and arguments, returns what JSON can express. Raises CallError
Handler = Callable[[str, Any], Awaitable[Any]]
#: one place in so many is for owners who have none: slow calls of one owner delay only their own
_RESERVE = 8
#: the `traceparent` of the request whose call the present task answers, for what it asks of others
trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
#: ends of a call with which its task must end, too
_ENDS = frozenset({"cancelled", "timeout", "gone"})


class Desk:
    """The calls that this process answers."""

    def __init__(self, answerer: Answerer, seconds: float, calls: int) -> None:
        """`seconds`: for one call; `calls`: at a time, of each offer, for which owners take turns.

        Call it in the event loop."""
        self._answerer = answerer
        self._seconds, self._calls = seconds, calls
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def offer(self, calls: Sequence[dict[str, Any]], handler: Handler) -> Offer:
        """Offers calls to all requests. Raises ProtocolError or SpaceError."""
        turns = Turns(self._calls, reserved=self._calls // _RESERVE)
        told = partial(self._told, handler, turns)
        return await asyncio.to_thread(partial(self._answerer.offer, calls, told, for_all=True))

    def replace(self, offer: Offer) -> None:
        """Withdraws an offer; its calls under way go on."""
        offer.replace()
        self._loop.call_later(2 * self._seconds, offer.close)  # when they have ended

    def _told(self, handler: Handler, turns: Turns, offer: Offer, event: CallEvent) -> None:
        """Passes an event on to the event loop; called in a thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has been closed
            self._loop.call_soon_threadsafe(self._arrived, handler, turns, offer, event)

    def _arrived(self, handler: Handler, turns: Turns, offer: Offer, event: CallEvent) -> None:
        if event.code is None:
            task = self._loop.create_task(self._answer_call(handler, turns, offer, event))
            self._tasks[event.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(event.id, None))
        elif event.code in _ENDS and (task_of := self._tasks.get(event.id)) is not None:
            task_of.cancel()

    async def _answer_call(self, handler: Handler, turns: Turns, offer: Offer, event: CallEvent) -> None:
        try:
            result = await self._result(handler, turns, event)
        except CallError as error:
            _log.info("a call of %s has failed: %s", event.name, error.code)
            await asyncio.to_thread(offer.refuse, event.id, error.code, error.message[:MAX_ERROR])
        else:
            await asyncio.to_thread(self._answerer.answer, event.id, result)

    async def _result(self, handler: Handler, turns: Turns, event: CallEvent) -> bytes:
        """Returns the value as JSON. Raises CallError."""
        try:
            arguments = json.loads(event.arguments) if event.arguments else {}
        except (ValueError, RecursionError) as error:
            raise CallError("arguments", f"the arguments are not JSON: {error}") from None
        trace_parent.set(event.trace)
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await turns.enter(event.owner)
                try:
                    value = await handler(event.name, arguments)
                finally:
                    turns.leave(event.owner)
            result = json.dumps(value, allow_nan=False).encode()
        except CallError:
            raise
        except Exception as error:
            if limit.expired():
                problem = f"{event.name} has not answered within {self._seconds:g} s (--tool-seconds)"
                raise CallError("timeout", problem) from None
            _log.warning("a call of %s has failed", event.name, exc_info=True)
            raise CallError("failed", f"{event.name} failed: {type(error).__name__}") from None
        if len(result) > MAX_RESULT_BYTES:
            raise CallError(
                "too_long",
                f"the result of {event.name} has {len(result)} bytes; the limit is {MAX_RESULT_BYTES}",
            )
        return result

    async def close(self) -> None:
        """Cancels all calls under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
