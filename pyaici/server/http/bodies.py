"""Limits on request bodies: the size of one, and the bytes of all at the same time."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from pyaici.server.http.access import network_of
from pyaici.server.http.errors import ApiError, busy, refuse, too_many

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pyaici.server.settings import ServerSettings


#: one caller may hold 1/4 of all bytes
_SHARE = 4
#: memory of an entry of a list
_ENTRY_BYTES = 8


class BodyRefused(HTTPException):
    """Ends the reading of a body. HTTPException is the only class that every reader passes on unchanged."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.status, error.message)
        self.error = error


class BodyBytes:
    """Counts the bytes of bodies from their arrival to the end of their request, in total and by caller."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most = settings.max_bodies_bytes
        largest = max(settings.max_body_bytes, settings.max_upload_bytes)
        #: one body of the largest size always has room, also if it arrives packet by packet
        self._each = max(self._most // _SHARE, largest + largest // 8)
        self._held: Counter[str] = Counter()
        self._total = 0

    def hold(self, caller: str, count: int) -> None:
        """Adds bytes that have arrived. Raises ApiError if the caller, or all together, hold too many."""
        if self._held[caller] + count > self._each:
            raise too_many(
                f"the bodies of your requests under way have more than {self._each} bytes in total: "
                "try again later"
            )
        if self._total + count > max(self._most, self._each):
            raise busy("the bodies of requests under way use all memory for bodies: try again later")
        self._held[caller] += count
        self._total += count

    def release(self, caller: str, count: int) -> None:
        """Removes bytes of a request that has ended."""
        self._total -= count
        self._held[caller] -= count
        if not self._held[caller]:
            del self._held[caller]


class BodyLimit:
    """Middleware that refuses bodies that are too large, or that exceed the limits, while they arrive."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, uploads: frozenset[str]) -> None:
        """Wraps `app`. `uploads`: paths of uploads, which have a limit of their own."""
        self._app = app
        self._settings = settings
        self._uploads = uploads
        self._bytes = BodyBytes(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, and counts the bytes of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._settings.max_body_bytes
        if scope["path"] in self._uploads:
            limit = self._settings.max_upload_bytes
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit:
            await refuse(scope, send, _too_large(limit))
            return
        caller, received, held = self._caller(scope), 0, 0

        async def receive_counted() -> Message:
            nonlocal received, held
            message = await receive()
            if message["type"] == "http.request":
                body = message.get("body", b"")
                received += len(body)
                if received > limit:
                    raise BodyRefused(_too_large(limit))
                size = sys.getsizeof(body) + _ENTRY_BYTES  # readers keep a list of what has arrived
                try:
                    self._bytes.hold(caller, size)
                except ApiError as error:
                    raise BodyRefused(error) from None
                held += size
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._bytes.release(caller, held)

    def _caller(self, scope: Scope) -> str:
        user = scope.get("state", {}).get("user")
        if user is not None:
            return str(user.caller)
        address = (scope.get("client") or ("",))[0]
        return f"address {network_of(address, loopback_apart=self._settings.loopback_apart)}"


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than the {limit} bytes that this server allows", code="too_large"
    )
