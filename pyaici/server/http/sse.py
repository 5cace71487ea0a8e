"""Sends server-sent events. An error before the first event still becomes an HTTP status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from sse_starlette import EventSourceResponse, ServerSentEvent

from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from fastapi import Request

    from pyaici.server.settings import ServerSettings


Result = TypeVar("Result")
#: seconds between comments that keep proxies from closing a quiet stream
_PING_SECONDS = 15
#: streams of JSON have no comments
_NEVER_SECONDS = 1 << 30
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


_EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
#: OpenAPI responses of routes that answer with a stream if the request asks for one
STREAM_OR_JSON: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/event-stream": {"schema": _EVENT}}}
}


def to_json(data: Any) -> str:
    """Returns JSON without spaces."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def event(data: Any, name: str | None = None) -> ServerSentEvent:
    """Returns an event whose data is JSON, or a text of one line unchanged."""
    return _LineEvent(data if isinstance(data, str) else to_json(data), event=name)


class _LineEvent(ServerSentEvent):
    """An event whose data has no line ends. To look for them takes 25 ms in the longest events."""

    def encode(self) -> bytes:
        """Returns the event."""
        name = f"event: {self.event}\n" if self.event else ""
        return f"{name}data: {self.data}\n\n".encode()


class JsonLine(ServerSentEvent):
    """A line of a stream of JSON objects, which has no events."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)

    def encode(self) -> bytes:
        """Returns the line."""
        return json.dumps(self.data, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


async def stream_events(
    request: Request, events: AsyncGenerator[ServerSentEvent, None], settings: ServerSettings
) -> EventSourceResponse:
    """Returns a streaming answer of these events.

    Waits for the first event: an error up to then is raised here and can still become a status. Closes the
    iterator when the client disconnects or reads too slowly.
    """
    try:
        first = await while_connected(request, anext(events))
    except BaseException:
        await events.aclose()
        raise

    async def all_events() -> AsyncIterator[ServerSentEvent]:
        try:
            yield first
            async for more in events:
                # the loop learns here that a write has failed, also when many events are ready
                await asyncio.sleep(0)
                yield more
        finally:
            await events.aclose()

    lines = isinstance(first, JsonLine)
    return EventSourceResponse(
        all_events(),
        headers=_HEADERS,
        media_type="application/x-ndjson" if lines else "text/event-stream",
        sep="\n",
        ping=_NEVER_SECONDS if lines else _PING_SECONDS,
        send_timeout=settings.send_timeout_s,
        shutdown_grace_period=settings.drain_s + settings.last_words_s,
    )


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """Returns the result of `work`; cancels `work` and raises ApiError if the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            raise ApiError(499, "the client has disconnected", code="disconnected")
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
