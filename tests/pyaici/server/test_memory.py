"""Controllers that print without end, and clients that read nothing: the server's memory stays bounded."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.servers.tiny_model import make_tiny_model
from pyaici.engines.engine import MAX_LOG_BYTES
from pyaici.server.http.users import Role, UserFile
from pyaici.server.scheduling.streams import MAX_BACKLOG_BYTES
from tests.pyaici.server.serving import Serving

#: each of four sequences prints 60 KB in each of so many steps
STEPS, PRINTED = 600, 60_000
#: allowed growth of the server besides: events in transit, and memory that its allocators keep
MIB_BESIDES = 120


@pytest.fixture(scope="module")
def printing(tmp_path_factory: pytest.TempPathFactory, guest: bytes) -> Iterator[tuple[Serving, str]]:
    """Yields a server with a user, and the token of the user."""
    users = UserFile(tmp_path_factory.mktemp("users") / "users.json")
    token = users.add("mallory", Role.UPLOAD)
    model = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    options = ("--model", str(model), "--users", str(users.path), "--send-timeout-s", "3")
    with Serving(tmp_path_factory.mktemp("printing") / "log", *options) as serving:
        with serving.client(token) as client:
            uploaded = client.post("/v1/controllers", content=guest).json()["id"]
            client.put("/v1/tags/bulk", json={"controller": uploaded}).raise_for_status()
            client.post("/v1/run", json=_body(4, stream=False)).raise_for_status()
        yield serving, token


def _body(steps: int = STEPS, **fields: Any) -> dict[str, Any]:
    call = {"controller": "bulk", "controller_arg": "log_bulk"}
    return {**call, "prompt": "x", "n": 4, "max_tokens": steps, "temperature": 0, **fields}


def _mib(server: Serving) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmRSS"))


def test_logs_of_a_request_are_bounded(printing: tuple[Serving, str]) -> None:
    server, token = printing
    before = _mib(server)
    with server.client(token) as client:
        answer = client.post("/v1/run", json=_body(stream=False)).json()
    logs = [fork["log"] for fork in answer["forks"]]
    assert len(logs) == 4 and sum(map(len, logs)) <= MAX_LOG_BYTES + 1000
    assert all(log.startswith("... ") and log.endswith("x") for log in logs)
    assert 4 * STEPS * PRINTED >> 20 > MIB_BESIDES, "they print more than the server may grow by"
    assert _mib(server) - before < MIB_BESIDES


def test_client_that_reads_nothing_is_cut_off(printing: tuple[Serving, str]) -> None:
    server, token = printing
    before = _mib(server)
    content = json.dumps(_body(4000, stream=True)).encode()
    head = ["POST /v1/run HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    head += ["X-Request-Id: lazy", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    with socket.create_connection(("127.0.0.1", server.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall("\r\n".join([*head, "", ""]).encode() + content)
        server.wait_for("lazy POST /v1/run")
    assert _mib(server) - before < (MAX_BACKLOG_BYTES >> 20) + MIB_BESIDES
