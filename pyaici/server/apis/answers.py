"""Sends an answer as a stream or whole, with a header that names ignored fields of the request."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from pyaici.server.apis.fields import MAX_FIELDS, OpenBody
from pyaici.server.http.sse import stream_events, while_connected

if TYPE_CHECKING:
    from fastapi import Request, Response
    from sse_starlette import ServerSentEvent

    from pyaici.server.service import Service

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
        """Returns the answer when it is complete."""


async def send(
    request: Request, response: Response, body: OpenBody, answer: Answer, *, stream: bool | None
) -> Response | dict[str, Any]:
    """Returns what a route returns: a stream, or the whole answer, whose headers are set in `response`."""
    headers = ignored_header(body.ignored)
    if not stream:
        response.headers.update(headers)
        return await while_connected(request, answer.whole())
    service: Service = request.app.state.service
    events = await stream_events(request, answer.events(), service.settings)
    events.headers.update(headers)
    return events


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
