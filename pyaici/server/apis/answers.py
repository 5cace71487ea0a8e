"""Sends an answer as a stream or whole, with a header that names ignored fields of the request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import Response

from pyaici.server.apis.fields import MAX_FIELDS, OpenBody
from pyaici.server.http.sse import stream_events, to_json, while_connected

if TYPE_CHECKING:
    from fastapi import Request
    from sse_starlette import ServerSentEvent

    from pyaici.server.service import Service

#: characters of JSON that are written without a pause: a millisecond or two
_PIECE = 1 << 14
#: most ignored fields that an answer names
_MAX_IGNORED = 16
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}")
_log = logging.getLogger("aicirt.server")
#: fields that the log has named
_logged = set[str]()


class Answer(Protocol):
    """An answer that is being generated."""

    def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Yields the events of a stream."""

    async def whole(self) -> dict[str, Any]:
        """Returns the answer when it is complete; long lists in it may be iterators."""


async def respond(
    request: Request, response: Response, body: OpenBody, answer: Answer, *, stream: bool | None
) -> Response:
    """Returns what a route returns: a stream, or the whole answer, with the headers of `response`."""
    headers = ignored_header(body.ignored)
    if not stream:
        text = await while_connected(request, _text(answer))
        headers |= dict(response.headers)
        return Response(text.encode(), media_type="application/json", headers=headers)
    service: Service = request.app.state.service
    events = await stream_events(request, answer.events(), service.settings)
    events.headers.update(headers)
    return events


async def _text(answer: Answer) -> str:
    return await in_pieces(await answer.whole())


async def in_pieces(value: Any) -> str:
    """Returns a value as JSON. Other requests have their turns between pieces.

    FastAPI would convert all of it at once: 3 s for the log-probabilities of 4096 tokens.
    """
    parts: list[str] = []
    since_pause = 0
    for part in _pieces(value):
        parts.append(part)
        since_pause += len(part)
        if since_pause > _PIECE:
            since_pause = 0
            await asyncio.sleep(0)
    return "".join(parts)


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        begin = "{"
        for name, inner in value.items():
            yield f"{begin}{to_json(name)}:"
            yield from _pieces(inner)
            begin = ","
        yield "}" if value else "{}"
    elif isinstance(value, list | Iterator):
        begin = "["
        for inner in value:
            yield begin
            yield from _pieces(inner) if isinstance(value, list) else (to_json(inner),)
            begin = ","
        yield "]" if begin == "," else "[]"
    else:
        yield to_json(value)


def ignored_header(names: Iterable[str]) -> dict[str, str]:
    """Returns the header that names fields which the server ignores; none without such fields.

    Logs each name once. Names that are not like those of fields are left out, and so are many of them.
    """
    named = list(itertools.islice(filter(_FIELD.fullmatch, names), _MAX_IGNORED))
    for name in named:
        if name not in _logged and len(_logged) < MAX_FIELDS:
            _logged.add(name)
            _log.info("requests have the field %s, which changes nothing here", name)
    return {"x-aici-ignored": ", ".join(named)} if named else {}
