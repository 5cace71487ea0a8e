"""Server-sent events: streams whose first event decides whether there is one at all."""

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
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


_EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
#: for routes whose answer is a stream if the request says so
STREAM_OR_JSON: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/event-stream": {"schema": _EVENT}}}
}


def event(data: Any, name: str | None = None) -> ServerSentEvent:
    """One event with JSON in it, or a text as it is."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return ServerSentEvent(text, event=name, sep="\n")


async def stream_events(
    request: Request, events: AsyncGenerator[ServerSentEvent, None], settings: ServerSettings
) -> EventSourceResponse:
    """An answer of these events.

    The first one is waited for: what is wrong with the request is known by then, raised here, and can
    still become a status. When the client goes, or reads too slowly, the iterator is closed.
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
                yield more
        finally:
            await events.aclose()

    return EventSourceResponse(
        all_events(),
        headers=_HEADERS,
        sep="\n",
        ping=_PING_SECONDS,
        send_timeout=settings.send_timeout_s,
        shutdown_grace_period=settings.drain_s + settings.last_words_s,
    )


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """What comes of `work`, which is cancelled when the client goes: nobody reads the answer."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            raise ApiError(499, "the client has gone", code="disconnected")
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
