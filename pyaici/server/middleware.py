"""Around every request: its id, the log's line of it, and its share of the metrics.

Mistakes of ours end here, so that their answers have ids and their lines the status, as all others have.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from aicirt.system.logs import fields
from pyaici.server.errors import internal
from pyaici.server.refusal import refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pyaici.server.metrics import Metrics

_log = logging.getLogger("aicirt.server.access")
_defects = logging.getLogger("aicirt.server")
#: in the log only: the client has gone before there was an answer
_GONE = 499
#: what else is called a method is for clients to make up
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


class RequestIds:
    """Gives each request an id, the client's own if it has sent one, and says in the log how it ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = sent.decode() if _ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status, start = 0, time.perf_counter()
        whole = gone = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        async def receive_until_gone() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or (message["type"] == "http.disconnect" and not whole)
            return message

        try:
            await self._app(scope, receive_until_gone, send_with_id)
        except ClientDisconnect:
            status = status or _GONE
        except Exception as error:
            name, about = type(error).__name__, fields(request=request_id)
            _defects.error("request %s failed: %s", request_id, name, exc_info=error, extra=about)
            # of an answer that has begun there is no end, so the server closes the connection
            if not status:
                await refuse(scope, send_with_id, internal(request_id))
        finally:
            if gone and not whole:  # whatever the answer would have been, nobody has it
                status = _GONE
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(seconds)
            user = scope["state"].get("user")
            name = "-" if user is None else user.name
            known = fields(
                request=request_id,
                user=name,
                method=method,
                route=route,
                status=status,
                ms=round(1000 * seconds, 1),
            )
            # the route, not the path: what users write into paths is not for the log
            _log.info(
                "%s %s %s %d in %.0f ms for %s",
                request_id,
                method,
                route or "-",
                status,
                1000 * seconds,
                name,
                extra=known,
            )
