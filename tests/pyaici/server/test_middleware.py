"""Unexpected exceptions: what clients receive, and what the log contains."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from pyaici.server.http.handlers import add_handlers
from pyaici.server.http.middleware import Metrics, RequestIds


def _app(metrics: Metrics) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError("a secret")

    @app.get("/api/v1/broken")
    @app.get("/api/broken")
    async def broken_elsewhere() -> None:
        raise RuntimeError("a secret")

    @app.get("/v1/half")
    async def half() -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"half of it"
            raise RuntimeError("a secret")

        return StreamingResponse(pieces())

    @app.get("/v1/gone")
    async def gone() -> None:
        raise ClientDisconnect

    add_handlers(app)
    app.add_middleware(RequestIds, metrics=metrics)
    return app


def _get(app: FastAPI, path: str) -> list[Any]:
    """Returns the sent messages. Exceptions of the application propagate."""
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": ""}
    headers = [(b"x-request-id", b"mine"), (b"host", b"x")]
    asyncio.run(app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send))
    return sent


def _lines(caplog: pytest.LogCaptureFixture) -> tuple[list[logging.LogRecord], list[dict[str, Any]]]:
    """Returns the records with a traceback, and the fields of the access log's records."""
    traced = [record for record in caplog.records if record.exc_info]
    ours = [record for record in caplog.records if record.name == "aicirt.server.access"]
    return traced, [vars(record)["fields"] for record in ours]


@pytest.mark.parametrize("path", ["/v1/broken", "/api/v1/broken", "/api/broken"])
def test_answer_to_an_exception_has_the_request_id(caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO, "aicirt")
    metrics = Metrics()
    start, body = _get(_app(metrics), path)
    assert start["status"] == 500 and dict(start["headers"])[b"x-request-id"] == b"mine"
    answer = json.loads(body["body"])
    error = answer["error"]  # each API has its own format
    if path == "/api/broken":
        assert "request mine" in error
    else:
        assert error["type"] == "api_error" and "request mine" in error["message"]
        assert ("code" in error) == (path == "/v1/broken")
    traced, requests = _lines(caplog)
    assert len(traced) == 1 and "mine" in traced[0].getMessage()
    assert vars(traced[0])["fields"] == {"request": "mine"}
    assert [line["status"] for line in requests] == [500]
    assert f'route="{path}",status="500"' in metrics.text().decode()
    assert "secret" not in caplog.messages[0] + body["body"].decode()


def test_exception_in_a_started_answer_ends_it_early(caplog: pytest.LogCaptureFixture) -> None:
    """The answer has no end, and the server closes the connection, so that clients notice."""
    caplog.set_level(logging.INFO, "aicirt")
    start, *pieces = _get(_app(Metrics()), "/v1/half")
    assert start["status"] == 200
    assert [piece["body"] for piece in pieces] == [b"half of it"] and pieces[0]["more_body"]
    traced, requests = _lines(caplog)
    assert len(traced) == 1 and [line["status"] for line in requests] == [200]


def test_client_disconnect_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aicirt")
    assert _get(_app(Metrics()), "/v1/gone") == []
    traced, requests = _lines(caplog)
    assert not traced and [line["status"] for line in requests] == [499]
