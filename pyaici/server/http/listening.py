"""The HTTP server around the application: its port, its start and its orderly shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from aicirt.contract.errors import AiciError
from pyaici.server.http.access import is_loopback
from pyaici.server.http.connections import Connections, protocol_of

if TYPE_CHECKING:
    from types import FrameType

    from fastapi import FastAPI

    from pyaici.server.settings import ServerSettings


_log = logging.getLogger("aicirt.server")
#: connections that are accepted in one turn of the event loop, so that streams wait for a moment only
ACCEPTED_AT_ONCE = 16
#: connections that may wait to be accepted
_WAITING = 2048
#: seconds that clients have after a second Ctrl-C to read the error
_LAST_WORDS_SECONDS = 1.0


def bind(settings: ServerSettings) -> socket.socket:
    """Binds the port before the model is loaded, to check that it is free. Clients cannot connect yet.

    Raises AiciError if the port cannot be bound.
    """
    host, port = settings.host, settings.port_to_listen_on
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AiciError(f"--host {host}: {error.strerror or error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise AiciError(
                f"port {port} of {host} is in use: stop the program that uses it, or choose another --port"
            ) from None
        raise AiciError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return bound


class HttpServer(uvicorn.Server):
    """Shuts down in order: running requests have `--drain-s`, then they are cancelled.

    Clients of cancelled requests are sent an error. A second Ctrl-C cancels the requests at once.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port_to_listen_on,
                log_config=None,
                access_log=False,
                http=protocol_of(Connections(settings)),
                backlog=ACCEPTED_AT_ONCE,
                ws="none",
                # uvicorn's defaults would trust proxies on this machine, and the environment
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=settings.trusted_proxies,
                # BoundedProtocol closes them earlier
                timeout_keep_alive=math.ceil(settings.idle_timeout_s) + 1,
                timeout_graceful_shutdown=round(settings.drain_s + settings.last_words_s),
                server_header=False,
            )
        )
        self._app = app
        self._settings = settings
        self._drain_s = settings.drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal: begins to shut down, or hurries if that has begun."""
        hurry = self.should_exit and sig == signal.SIGINT
        super().handle_exit(sig, frame)
        if hurry:
            self.force_exit = False  # uvicorn would stop in the middle of requests
            self._loop.call_soon_threadsafe(self._hurry)

    def _hurry(self) -> None:
        self._app.state.service.fail_requests()
        self._loop.call_later(_LAST_WORDS_SECONDS, self._disconnect)

    def _disconnect(self) -> None:
        """Closes the connections of clients that have not read the error."""
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to serve, and logs the address."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(_WAITING)  # asyncio accepts as many at once as it lets wait
            host, port = bound.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            if warning := exposure(self._settings):
                _log.warning("%s", warning)
            _log.info("running on http://%s:%d (Ctrl-C ends it)", shown, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for running requests, and cancels them after `--drain-s`."""
        late = asyncio.get_running_loop().call_later(self._drain_s, self._app.state.service.end_requests)
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()


def exposure(settings: ServerSettings) -> str | None:
    """Returns a warning if other machines can reach the server and it requires no token; else None."""
    role = settings.role_without_token
    if is_loopback(settings.host) or role == "none":
        return None
    return (
        f"this server listens on {settings.host} and requires no token: every client has the role {role}. "
        "To require tokens, run `aici users add NAME --file users.json` and use --users users.json. "
        "To accept only clients on this machine, use --host 127.0.0.1"
    )
