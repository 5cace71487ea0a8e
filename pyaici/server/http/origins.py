"""Checks the headers Host and Origin, since any page that a user opens can send requests to this server."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyaici.server.http.errors import ApiError, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyaici.server.settings import ServerSettings


#: these methods change nothing, and pages of other sites may not read the answers
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


class Origins:
    """Refuses requests that pages of other sites send, and requests to names that are not this server's.

    A page needs no permission to send what a form can send. If the page's own name resolves to this server,
    browsers treat the server as the page's own (DNS rebinding).

    That attack needs a name. On loopback the server therefore answers only to names of loopback and names in
    the settings. On other addresses it also answers to IP addresses and its own host name.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins)
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._local = is_loopback(settings.host)
        if not self._local:
            self._hosts |= {socket.gethostname().lower(), settings.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles an ASGI request: refuses it, or passes it on."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await refuse(scope, send, ApiError(403, problem, kind="permission_error", code="origin"))
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._answers_to(name := _name_of(host)):
            return f"{name!r} is not a name of this server; to allow it, use --allowed-hosts {name}"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or scope["method"] in _HARMLESS or origin in self._origins:
            return None
        if origin.partition("://")[2] == host:
            return None
        return f"pages of {origin} may not call this server; to allow them, use --cors-origins {origin}"

    def _answers_to(self, name: str) -> bool:
        if is_loopback(name) or name in self._hosts or "*" in self._hosts:
            return True
        return not self._local and _is_address(name)


def is_loopback(name: str) -> bool:
    """Tells whether a host name or address leads to this machine alone."""
    if name in ("localhost", ""):
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _name_of(host: str) -> str:
    """Returns the name in a Host header; an invalid header is returned whole, and matches no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
