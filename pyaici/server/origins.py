"""Which pages may call: a server on this machine alone is within reach of every page that its user opens."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyaici.server.errors import ApiError
from pyaici.server.middleware import refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyaici.server.settings import ServerSettings

#: what these ask for changes nothing, and pages of other sites may not read the answers
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


class Origins:
    """Refuses requests that pages of other sites send, and names of others for this machine.

    A page can send what a form can without being asked. And one whose own name leads here counts as this
    server's to a browser, so where it listens on loopback only names of loopback are answered to.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins)
        self._hosts = frozenset(settings.allowed_hosts)
        self._local = _is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await refuse(scope, send, ApiError(403, problem, kind="permission_error", code="origin"))
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = urlsplit(f"//{host}").hostname or ""
        if self._local and not (_is_loopback(name) or name in self._hosts):
            return f"this server is not called {name!r}; if it is, start it with --allowed-hosts {name}"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or scope["method"] in _HARMLESS or origin in self._origins:
            return None
        if urlsplit(origin).netloc == host:
            return None
        return f"pages of {origin} may not call; if they may, start the server with --cors-origins {origin}"


def _is_loopback(name: str) -> bool:
    if name in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
