"""Streams whose clients disconnect end at once, instead of writing on to a closed connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from sse_starlette import ServerSentEvent

from lab.system.waiting import PATIENCE
from pyaici.server.http.connections import Connections, protocol_of
from pyaici.server.http.sse import event, stream_events
from pyaici.server.settings import ServerSettings

#: events that are ready when the client disconnects: asyncio warns from the fifth failed write on
READY = 100
_WARNING = "socket.send() raised exception."


async def _broken_off() -> int:
    """Resets the connection of a stream with `READY` events left; returns how many of them are produced."""
    app, client, ended, produced = FastAPI(), socket.socket(), asyncio.Event(), 0

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        nonlocal produced
        try:
            yield event("first")
            # in this thread, so the server finds out when it writes
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            for produced in range(1, READY + 1):  # noqa: B007
                yield event("more")
        finally:
            ended.set()

    @app.get("/")
    async def answer(request: Request) -> Response:
        return await stream_events(request, events(), ServerSettings())

    with socket.create_server(("127.0.0.1", 0)) as bound, contextlib.closing(client):
        protocol = protocol_of(Connections(ServerSettings()))
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_config=None, lifespan="off"))
        serving = asyncio.create_task(server.serve([bound]))
        client.connect(bound.getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(ended.wait(), PATIENCE)
        server.should_exit = True
        await serving
    return produced


def test_disconnected_client_ends_a_stream_with_many_ready_events(caplog: pytest.LogCaptureFixture) -> None:
    produced = asyncio.run(_broken_off())
    assert sum(record.getMessage() == _WARNING for record in caplog.records) == 0
    assert 1 <= produced <= 3
