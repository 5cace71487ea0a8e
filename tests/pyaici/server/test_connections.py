"""Clients without a token, half-sent requests and many connections do not affect other clients."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h11
import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import PATIENCE
from pyaici.server.http.access import network_of
from pyaici.server.http.connections import BoundedProtocol, Connections, protocol_of
from pyaici.server.http.listening import ACCEPTED_AT_ONCE, HttpServer, bind
from pyaici.server.http.users import Role, UserFile
from pyaici.server.settings import ServerSettings
from tests.pyaici.server.serving import Serving

BODY, EACH, ALL = 64 << 10, 12, 20
POSTS = ["/v1/run", "/v1/completions", "/v1/chat/completions", "/api/v1/messages", "/cpc", "/cpc_stream"]
POSTS += ["/v1/controllers", "/v1/scripts", "/none"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> UserFile:
    return UserFile(tmp_path_factory.mktemp("users") / "users.json")


@pytest.fixture(scope="module")
def tokens(users: UserFile) -> dict[str, str]:
    return {name: users.add(name, Role.UPLOAD) for name in ("ada", "mallory")}


@pytest.fixture(scope="module")
def strict(
    tmp_path_factory: pytest.TempPathFactory, model: Path, users: UserFile, tokens: dict[str, str]
) -> Iterator[Serving]:
    """A server that requires tokens, with small limits and short timeouts."""
    options = ["--model", model, "--users", users.path, "--requests-per-minute", 0]
    options += ["--idle-timeout-s", 8, "--header-timeout-s", 1, "--body-timeout-s", 1, "--send-timeout-s", 1]
    options += ["--max-body-bytes", BODY, "--max-upload-bytes", BODY, "--max-bodies-bytes", 3 * BODY]
    options += ["--max-connections", ALL, "--max-connections-each", EACH, "--loopback-apart"]
    with Serving(tmp_path_factory.mktemp("strict") / "log", *map(str, options)) as serving:
        yield serving


def _connect(server: Serving, source: str = "127.0.0.1") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), 60, source_address=(source, 0))
    found.settimeout(PATIENCE)
    return found


def _head(path: str, length: int, token: str = "", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}", *([f"Authorization: Bearer {token}"] if token else []), "", ""]
    return "\r\n".join(lines).encode()


def _answer(connection: socket.socket) -> tuple[int, str]:
    """Returns the status and the error code of an answer."""
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        length = 0
        while (line := file.readline().strip().lower()) != b"":
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
        return status, json.loads(file.read(length))["error"].get("code", "")


def _serves(server: Serving, token: str) -> None:
    """Asserts that the request of a well-behaved user is answered."""
    with server.client(token) as client:
        body = {"prompt": "a", "max_tokens": 2, "stream": False}
        assert client.post("/v1/run", json=body).status_code == 200


@pytest.mark.parametrize("token", ["", "wrong"])
@pytest.mark.parametrize("path", POSTS)
def test_requests_are_refused_before_their_body_arrives(strict: Serving, path: str, token: str) -> None:
    with _connect(strict) as connection:
        connection.sendall(_head(path, 1000, token))
        status, code = _answer(connection)
        assert status == 401 and code in ("unauthorized", "")


def test_connection_is_usable_after_a_dropped_body(strict: Serving, tokens: dict[str, str]) -> None:
    with _connect(strict) as connection:
        connection.sendall(_head("/v1/run", BODY) + b"a" * BODY)
        assert _answer(connection)[0] == 401
        connection.sendall(_head("/v1/none", 0, tokens["ada"], "GET"))
        assert _answer(connection)[0] == 404


def test_dropped_bodies_are_bounded(strict: Serving) -> None:
    """A client that keeps sending after the answer loses its connection."""
    with _connect(strict) as connection:
        connection.sendall(_head("/v1/run", 1 << 40))
        assert _answer(connection)[0] == 401
        with pytest.raises(OSError):
            while True:
                connection.sendall(b"a" * BODY)


class SimulatedLoop:
    """Time passes when the test says so, and calls that are due are made then."""

    def __init__(self) -> None:
        self.now, self.later = 0.0, list[tuple[float, Mock, Any]]()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any, *_args: Any) -> Any:
        handle = Mock()
        self.later.append((self.now + seconds, handle, call))
        return handle

    def create_task(self, coroutine: Any) -> Any:
        coroutine.close()
        return Mock()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [entry for entry in self.later if entry[0] <= self.now]
        self.later = [entry for entry in self.later if entry[0] > self.now]
        for _, handle, call in due:
            if not handle.cancel.called:
                call()


def refused_senders(loop: SimulatedLoop, count: int) -> list[Any]:
    """Returns connections that have been answered while their bodies arrive."""
    connections = Connections(ServerSettings())
    config = uvicorn.Config(FastAPI(), http=protocol_of(connections))
    config.load()
    senders = []
    for number in range(count):
        transport = Mock(is_closing=Mock(return_value=False))
        transport.get_extra_info.side_effect = {"peername": (f"10.0.0.{number}", 1)}.get
        sender: Any = protocol_of(connections)(config, ServerState(), {}, loop)
        sender.connection_made(transport)
        sender.data_received(_head("/v1/run", 1 << 40))
        sender.conn.send(h11.Response(status_code=401, headers=[("content-length", "0")]))
        sender.conn.send(h11.EndOfMessage())
        sender.cycle.response_complete = True
        sender.on_response_complete()
        senders.append(sender)
    return senders


@pytest.mark.parametrize(("rate", "seconds"), [(1, 10), (64 << 10, 14), (512 << 10, 512)])
def test_a_slow_machine_has_time_to_send_a_body_that_is_dropped(rate: int, seconds: int) -> None:
    """A connection stays open while its bytes come fast enough, up to a number of bytes."""
    loop = SimulatedLoop()
    (sender,) = refused_senders(loop, 1)
    while not sender.transport.close.called:
        sender.data_received(bytes(rate))
        loop.advance(1.0)
    assert loop.now == pytest.approx(seconds, abs=1.5)


def test_all_dropped_bodies_together_arrive_at_a_bounded_rate() -> None:
    """Reading them costs the time of the event loop, and nobody has paid for it."""
    loop = SimulatedLoop()
    senders = refused_senders(loop, 8)
    received = 0
    for _ in range(100):
        for sender in senders:
            calls = [name for name, *_ in sender.transport.method_calls if name.endswith("_reading")]
            if calls[-1:] != ["pause_reading"]:
                sender.data_received(bytes(256 << 10))
                received += 256 << 10
        loop.advance(0.01)
    assert 32 << 20 <= received <= 36 << 20


def test_a_crowd_is_let_in_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, turns = 0, list[int]()
    monkeypatch.setattr(BoundedProtocol, "connection_made", lambda _self, _transport: turns.append(turn))

    async def let_in() -> None:
        nonlocal turn
        settings = ServerSettings(port=0)
        with bind(settings) as listening, ExitStack() as crowd:
            server = HttpServer(FastAPI(), settings)
            server.config.load()
            server.lifespan = server.config.lifespan_class(server.config)
            await server.startup([listening])
            for _ in range(200):
                crowd.enter_context(socket.create_connection(listening.getsockname(), PATIENCE))
            while len(turns) < 200:
                turn += 1
                await asyncio.sleep(0)
            for each in server.servers:
                each.close()
            await server.lifespan.shutdown()

    asyncio.run(let_in())
    assert max(Counter(turns).values()) <= ACCEPTED_AT_ONCE + 1  # Python 3.12 accepts one more


@pytest.mark.parametrize("chunked", [False, True])
def test_client_that_sends_a_too_large_body_to_the_end_gets_the_answer(
    strict: Serving, tokens: dict[str, str], chunked: bool
) -> None:
    """The asynchronous client drops an answer if the connection breaks before the body is sent."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(16):
            yield b"a" * (4 << 20)

    async def post() -> tuple[int, str]:
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            headers = {"Authorization": f"Bearer {tokens['ada']}", "Content-Type": "application/json"}
            body = pieces() if chunked else b"a" * (64 << 20)
            answer = await client.post(f"{strict.url}/v1/run", headers=headers, content=body)
            return answer.status_code, answer.json()["error"]["message"]

    status, message = asyncio.run(post())
    assert status == 413 and f"larger than the {BODY} bytes" in message


def test_idle_connections_stay_open_longer_than_a_head_may_take(
    strict: Serving, tokens: dict[str, str]
) -> None:
    """Clients without retries lose a request that they send just when the server closes the connection."""
    head = _head("/v1/none", 0, tokens["ada"], "GET")
    with _connect(strict) as connection, _connect(strict) as half_sent:
        for one in (connection, half_sent):
            one.sendall(head)
            assert _answer(one)[0] == 404
        connection.settimeout(2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(PATIENCE)
        connection.sendall(head)
        assert _answer(connection)[0] == 404
        half_sent.sendall(head[:20])
        assert _answer(half_sent) == (408, "slow_client")


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_half_sent_heads_time_out(strict: Serving, sent: bytes) -> None:
    with _connect(strict) as connection:
        connection.sendall(sent)
        assert _answer(connection) == (408, "slow_client")
        assert connection.recv(1) == b""


def test_idle_connections_close_without_another_answer(strict: Serving, tokens: dict[str, str]) -> None:
    with _connect(strict) as connection:
        connection.sendall(_head("/v1/none", 0, tokens["ada"], "GET"))
        assert _answer(connection)[0] == 404
        answered = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - answered > 5.5, "uvicorn's own limit is 5 s"


def test_trickled_heads_time_out(strict: Serving) -> None:
    with _connect(strict) as connection:
        connection.settimeout(0.1)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        assert _trickle(connection, b"X-A: b\r\n").startswith(b"HTTP/1.1 408")


def test_trickled_bodies_time_out(strict: Serving, tokens: dict[str, str]) -> None:
    with _connect(strict) as connection:
        connection.settimeout(0.1)
        connection.sendall(_head("/v1/run", BODY, tokens["mallory"]))
        assert _trickle(connection, b" ").startswith(b"HTTP/1.1 408")


def _trickle(connection: socket.socket, piece: bytes) -> bytes:
    """Sends pieces until the server answers, and returns the answer."""
    while True:
        connection.sendall(piece)
        try:
            return connection.recv(100)
        except TimeoutError:
            continue


def test_unread_answers_close_the_connection(strict: Serving) -> None:
    with _connect(strict) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(OSError):
            while True:
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
                time.sleep(0.05)


def test_connections_of_one_address_are_bounded(strict: Serving, tokens: dict[str, str]) -> None:
    with ExitStack() as stack:
        source = "127.0.0.2"
        for _ in range(EACH):
            stack.enter_context(_connect(strict, source))
        with _connect(strict, source) as refused:
            assert _answer(refused) == (429, "too_many_waiting")
        _serves(strict, tokens["ada"])


def test_idle_connections_make_room_for_other_addresses(strict: Serving, tokens: dict[str, str]) -> None:
    with ExitStack() as stack:
        for number in range(ALL):
            stack.enter_context(_connect(strict, f"127.0.0.{3 + number % 2}"))
        _serves(strict, tokens["ada"])


def test_bodies_of_one_user_are_bounded(strict: Serving, tokens: dict[str, str]) -> None:
    with ExitStack() as stack:
        half = [stack.enter_context(_connect(strict, "127.0.0.5")) for _ in range(2)]
        for connection in half:
            connection.sendall(_head("/v1/run", BODY, tokens["mallory"]) + b" " * (BODY - 1))
        assert {_answer(connection) for connection in half} == {
            (429, "too_many_waiting"),
            (408, "slow_client"),
        }
        _serves(strict, tokens["ada"])


def test_forwarded_addresses_are_trusted_from_configured_proxies_only(tmp_path: Path, model: Path) -> None:
    for proxies, allowed in (((), 429), (("--trusted-proxies", "127.0.0.0/8"), 404)):
        options = ("--model", str(model), "--requests-per-minute", "60", *proxies)
        with Serving(tmp_path / f"log-{allowed}", *options) as serving, serving.client() as client:
            answers = [
                client.get("/v1/none", headers={"X-Forwarded-For": f"10.0.0.{number}"})
                for number in range(30)
            ]
            assert answers[-1].status_code == allowed
            if not proxies:  # nor does another address of the loopback interface
                with httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.9")) as other:
                    assert other.get(f"{serving.url}/v1/none").status_code == 429


def test_access_log_names_the_user(strict: Serving, tokens: dict[str, str]) -> None:
    headers = {"x-request-id": "look-at-me"}
    with strict.client(tokens["ada"]) as client:
        client.get("/v1/controllers", headers=headers)
    strict.wait_for("look-at-me GET /v1/controllers 200 in .* ms for ada")


def test_ipv6_sites_and_mapped_addresses_count_once() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8:0:ffff:1::1") != network_of("2001:db8:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("") == ""


def test_addresses_of_this_machine_count_once() -> None:
    assert network_of("127.0.0.2") == network_of("127.9.9.9") == network_of("::1") == "127.0.0.1"
    apart = {network_of(address, loopback_apart=True) for address in ("127.0.0.1", "127.0.0.2", "::1")}
    assert apart == {"127.0.0.1", "127.0.0.2", "::1"}
