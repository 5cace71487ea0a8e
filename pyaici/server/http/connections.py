"""Limits on connections: how many there may be, and how long a client may take to send or to read.

The limits apply before anything is known of a request, so idle and half-sent connections count as well.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from aicirt.contract.errors import counted
from pyaici.server.http.access import network_of
from pyaici.server.http.errors import ApiError, busy, too_many

if TYPE_CHECKING:
    from pyaici.server.settings import ServerSettings


#: a body that arrives at this rate is not late, whatever its size
_BODY_BYTES_PER_SECOND = 16 << 10
#: Seconds and bytes in which the rest of a body is read and dropped after the answer. A client that still
#: sends when the connection closes may lose the answer; most stop as soon as they see it. One that sends at
#: this rate has more time.
_DROP_SECONDS, _DROP_BYTES, _DROPPED_BYTES_PER_SECOND = 10.0, 256 << 20, 256 << 10
#: the same for all connections together: dropping bodies must not take the event loop from others
_DROP_BYTES_PER_SECOND = 32 << 20


class Connections:
    """All open connections, by the network that they come from."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._proxies = [ipaddress.ip_network(name, strict=False) for name in settings.trusted_proxies]
        self._open: dict[str, set[BoundedProtocol]] = {}
        self._count = 0
        #: loop time at which all dropped bytes have come at the allowed rate
        self._dropped = 0.0

    def add(self, connection: BoundedProtocol) -> None:
        """Admits a connection. Raises ApiError if there are too many.

        If all places are taken, the network with most connections loses one whose request is not complete.
        """
        settings, network = self.settings, connection.network
        held = len(self._open.get(network, ()))
        if held >= settings.max_connections_each and not self._is_proxy(connection.address):
            raise too_many(f"{network} has {counted(held, 'open connection')}: close or reuse some")
        if self._count >= settings.max_connections and not self._evict(held):
            raise busy(f"all {self._count} connections are in use: try again later")
        self._open.setdefault(network, set()).add(connection)
        self._count += 1

    def remove(self, connection: BoundedProtocol) -> None:
        """Forgets a connection, if it is registered."""
        found = self._open.get(connection.network, set())
        if connection in found:
            found.remove(connection)
            self._count -= 1
            if not found:
                del self._open[connection.network]

    def seconds_to_drop(self, nbytes: int, now: float) -> float:
        """Counts dropped bytes; returns for how many seconds their connection must not be read."""
        self._dropped = max(self._dropped, now) + nbytes / _DROP_BYTES_PER_SECOND
        return self._dropped - now

    def _evict(self, held: int) -> bool:
        """Closes a waiting connection of the network with most; returns whether it closed one.

        That network must have more than the new connection's network would then have (`held` + 1).
        """
        largest = max(self._open.values(), key=len)
        idle = next((connection for connection in largest if connection.is_waiting), None)
        if idle is None or len(largest) <= held + 1:
            return False
        self.remove(idle)
        idle.transport.abort()
        return True

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in proxies for proxies in self._proxies)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with limits on the number of connections and on the time that a client takes."""

    #: set by `protocol_of`
    connections_of_all: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admits the connection, or answers with an error and closes it."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        apart = self.connections_of_all.settings.loopback_apart
        self.network = network_of(self.address, loopback_apart=apart)
        #: h11.IDLE while a request's head is awaited, h11.SEND_BODY while its body is, else None
        self._awaited: Any = None
        self._since, self._received = 0.0, 0
        self._dropping = False
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._drop_timer: asyncio.TimerHandle | None = None
        try:
            self.connections_of_all.add(self)
        except ApiError as error:
            self._answer(error)
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection and stops its timers."""
        self.connections_of_all.remove(self)
        for timer in (self._read_timer, self._write_timer, self._drop_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """Whether the connection waits for the rest of a request."""
        return self._awaited is not None

    # -- what the client sends ----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Reads the data, unless the connection is about to close."""
        if self.transport.is_closing():
            return
        if self._between_requests:  # the head of another request begins here
            self._since = self.loop.time()
            self._received = len(data)
            self._start_timer(self._allowed())
        else:
            self._received += len(data)
        settings = self.connections_of_all.settings
        if self._dropping:
            self.transport.pause_reading()
            seconds = self.connections_of_all.seconds_to_drop(len(data), self.loop.time())
            self._drop_timer = self.loop.call_later(seconds, self.transport.resume_reading)
        if not self._dropping or self._received <= max(settings.max_body_bytes, settings.max_upload_bytes):
            super().data_received(data)
        elif self._received <= _DROP_BYTES:
            self.transport.write_eof()  # after so many bytes no further request is read
        else:
            self.transport.close()

    def handle_events(self) -> None:
        """Handles events as uvicorn does, then starts the time limit for the next part of the request."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """Completes the response as uvicorn does, then drops an unread body for a moment."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._dropping, self._since, self._received = True, self.loop.time(), 0
            self._start_timer(self._allowed())

    def _watch(self) -> None:
        state = self.conn.their_state
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited is self._awaited or self.transport.is_closing():
            return
        self._awaited, self._dropping = awaited, False
        if awaited is None:
            if self._read_timer is not None:
                self._read_timer.cancel()
            return
        self._since, self._received = self.loop.time(), 0
        self._start_timer(self._allowed())

    @property
    def _between_requests(self) -> bool:
        return self._awaited is h11.IDLE and self.cycle is not None and not self._received

    def _allowed(self) -> float:
        """Returns the seconds allowed for the awaited part, given how many bytes have arrived."""
        settings = self.connections_of_all.settings
        if self._dropping:
            return _DROP_SECONDS + self._received / _DROPPED_BYTES_PER_SECOND
        if self._between_requests:
            return settings.idle_timeout_s
        if self._awaited is h11.IDLE:
            return settings.header_timeout_s
        return settings.body_timeout_s + self._received / _BODY_BYTES_PER_SECOND

    def _start_timer(self, seconds: float) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = self.loop.call_later(seconds, self._check_reading)

    def _check_reading(self) -> None:
        if self.transport.is_closing():
            return
        left = self._since + self._allowed() - self.loop.time()
        if left > 0:
            self._start_timer(left)
        elif self._dropping or self._between_requests:
            self.transport.close()  # no request has begun to arrive, so there is nothing to answer
        elif self._awaited is h11.IDLE:
            self._answer(_late("the head of the request did not arrive"))
        else:
            self._answer(_late("the body of the request did not arrive"))

    # -- what the client reads ----------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Starts the time limit for a client that reads more slowly than it is sent to."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        """Stops the time limit: the client has read."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _expect_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        seconds = self.connections_of_all.settings.send_timeout_s
        self._write_timer = self.loop.call_later(seconds, self._check_reader, waiting)

    def _check_reader(self, waited: int) -> None:
        if self.transport.get_write_buffer_size() < waited:
            self._expect_reader()
        else:
            self.transport.abort()

    def _answer(self, error: ApiError) -> None:
        """Sends an error, unless an answer has begun, and closes the connection."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            data = json.dumps(error.body()).encode()
            headers = {
                "content-type": "application/json",
                "content-length": str(len(data)),
                "connection": "close",
                **error.headers,
            }
            phrase = STATUS_PHRASES[error.status].decode()
            head = [f"HTTP/1.1 {error.status} {phrase}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
            self.transport.write("\r\n".join(head).encode() + data)
        self.transport.close()


def protocol_of(connections: Connections) -> type[BoundedProtocol]:
    """Returns a protocol class with these limits: uvicorn creates an object of it for each connection."""
    return type("Protocol", (BoundedProtocol,), {"connections_of_all": connections})


def _late(message: str) -> ApiError:
    return ApiError(408, f"{message} in time", kind="timeout_error", code="slow_client")
