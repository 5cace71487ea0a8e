"""Requests of other sites' pages, and requests to unknown host names, are refused."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from pyaici.server.http.access import Origins
from pyaici.server.http.listening import exposure
from pyaici.server.settings import ServerSettings
from tests.pyaici.server.serving import Serving


def _status(settings: ServerSettings, method: str = "POST", **headers: str) -> int:
    """Returns the status of a request with these headers; 200 if it was passed on."""
    found: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(200)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }
    asyncio.run(Origins(app, settings)(scope, None, send))  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8000", "", 200),
        ("localhost:8000", "http://localhost:8000", 200),
        ("[::1]:8000", "http://[::1]:8000", 200),
        ("127.0.0.1:8000", "http://evil.example", 403),
        ("127.0.0.1:8000", "http://127.0.0.1:9000", 403),
        ("127.0.0.1:8000", "null", 403),
        ("127.0.0.1:8000", "https://mine.example", 200),
        ("evil.example:8000", "http://evil.example:8000", 403),
        ("proxy.example", "https://mine.example", 200),
    ],
)
def test_origin_and_host_decide_whether_a_request_passes(host: str, origin: str, status: int) -> None:
    settings = ServerSettings(cors_origins=["https://mine.example"], allowed_hosts=["proxy.example"])
    headers = {"host": host, **({"origin": origin} if origin else {})}
    assert _status(settings, **headers) == status
    if "evil" not in host:
        assert _status(settings, "GET", **headers) == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.0.0.5:8000", 200),
        ("[fd00::1]:8000", 200),
        ("localhost:8000", 200),
        ("mine.example", 200),
        ("Mine.Example:443", 200),
        (f"{socket.gethostname()}:8000", 200),
        ("evil.example:8000", 403),
        ("10.0.0.5.evil.example", 403),
        ("[", 403),
    ],
)
def test_unknown_host_names_are_refused_on_other_addresses(host: str, status: int) -> None:
    settings = ServerSettings(host="0.0.0.0", allowed_hosts=["mine.example"])
    assert _status(settings, host=host) == status
    assert _status(settings, "GET", host=host) == status
    assert _status(ServerSettings(host="0.0.0.0", allowed_hosts=["*"]), host=host) == 200


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "anonymous": "none"}, False),
        ({"host": "0.0.0.0", "users": "users.json"}, False),
        ({"host": "0.0.0.0", "users": "users.json", "anonymous": "run"}, True),
    ],
)
def test_warning_if_other_machines_need_no_token(settings: dict[str, Any], warned: bool) -> None:
    warning = exposure(ServerSettings(**settings))
    assert (warning is not None) == warned
    assert warning is None or "--users users.json" in warning


def test_refused_origin_and_host_over_http(server: Serving) -> None:
    with server.client() as client:
        refused = client.post("/v1/run", json={"prompt": "a"}, headers={"Origin": "http://evil.example"})
        assert refused.status_code == 403 and refused.json()["error"]["code"] == "origin"
        assert "--cors-origins http://evil.example" in refused.json()["error"]["message"]
        assert "x-request-id" in refused.headers
        named = client.get("/v1/models", headers={"Host": "evil.example"})
        assert named.status_code == 403 and "--allowed-hosts evil.example" in named.json()["error"]["message"]
