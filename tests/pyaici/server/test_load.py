"""Many clients at once, and clients that misbehave: answers are not mixed up, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lab.system.processes import family
from lab.system.waiting import PATIENCE
from tests.pyaici.server.serving import Serving

pytestmark = pytest.mark.slow

STREAMS = 32
LIVE = ('aici_live_requests{controlled="false"}', 'aici_live_requests{controlled="true"}')


def _settled(server: Serving, seconds: float = PATIENCE) -> dict[str, float]:
    """Returns the metrics after all requests have ended."""
    deadline = time.monotonic() + seconds
    while True:
        found = server.metrics()
        live = sum(value for name, value in found.items() if name.startswith("aici_live"))
        if live == 0:
            return found
        assert time.monotonic() < deadline, f"{live} requests still live"
        time.sleep(0.2)


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def _text(client: httpx2.AsyncClient, body: dict[str, Any]) -> str:
    """Returns the text of the first fork of a run, from its stream."""
    text = ""
    async with client.stream("POST", "/v1/run", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                for fork in event.get("forks", ()):
                    if event["object"] == "run" and fork["index"] == 0:
                        text = text[: len(text) - fork.get("backtrack", 0)] + fork["text"]
    return text


def _bodies() -> list[tuple[dict[str, Any], str]]:
    """Returns requests, each with a pattern that only its own answer matches."""
    found: list[tuple[dict[str, Any], str]] = []
    for number in range(STREAMS):
        base = {"prompt": f"Client {number} says: ", "max_tokens": 40, "temperature": 1.0, "seed": number}
        kind = number % 4
        if kind == 0:
            call = {"controller": "regex", "controller_arg": f"client {number} [a-z]{{1,6}}!"}
            pattern = rf"client {number} [a-z]{{1,6}}!"
        elif kind == 1:
            schema = {"type": "object", "properties": {f"key{number}": {"type": "boolean"}}}
            schema |= {"required": [f"key{number}"], "additionalProperties": False}
            call = {"controller": "json_schema", "controller_arg": schema}
            pattern = rf'\{{\s*"key{number}":\s*(true|false)\s*\}}'
        elif kind == 2:
            call = {"controller": "choice", "controller_arg": [f"red {number}", f"green {number}"]}
            pattern = rf"(red|green) {number}"
        else:
            call = {"controller": "kbnf", "controller_arg": f"start ::= '{number}:' #'[xyz]{{1,9}}' '.';"}
            pattern = rf"{number}:[xyz]{{1,9}}\."
        found.append(({**base, **call}, pattern))
    return found


@pytest.fixture
def server(exact_server: Serving) -> Serving:
    """A server whose model takes little time: the tests load everything else."""
    return exact_server


def test_concurrent_streams_get_their_own_answers(server: Serving) -> None:
    bodies = _bodies()

    async def all_at_once() -> list[str]:
        limits = httpx2.Limits(max_connections=STREAMS)
        async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as client:
            return await asyncio.gather(*(_text(client, body) for body, _ in bodies))

    for (body, pattern), text in zip(bodies, asyncio.run(all_at_once()), strict=True):
        assert re.fullmatch(pattern, text), (body, text)
    _settled(server)


def test_disconnected_clients_leave_nothing_behind(server: Serving) -> None:
    processes = set(family(server.process.pid))
    files = _open_files(server.process.pid)

    async def vanish(client: httpx2.AsyncClient, body: dict[str, Any], steps: int) -> None:
        body = {**body, "controller": "none", "controller_arg": None, "max_tokens": 500}
        if steps % 3 == 0:
            body |= {"controller": "regex", "controller_arg": "(a|b)*"}
        async with client.stream("POST", "/v1/run", json=body) as answer:
            async for _ in answer.aiter_lines():
                steps -= 1
                if steps < 0:
                    return

    async def all_at_once() -> None:
        async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            await asyncio.gather(
                *(vanish(client, body, number % 7) for number, (body, _) in enumerate(_bodies()))
            )

    before = _settled(server)
    for _ in range(2):
        asyncio.run(all_at_once())
    after = _settled(server)
    name = 'aici_sequences_ended_total{error="",reason="cancelled"}'
    assert after[name] - before.get(name, 0) >= STREAMS
    assert set(family(server.process.pid)) == processes
    assert _open_files(server.process.pid) <= files + 8  # connections that are kept open


def test_clients_that_do_not_read_do_not_block_others(server: Serving) -> None:
    body = json.dumps({"prompt": "Once", "max_tokens": 100}).encode()
    head = "POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    sockets = []
    for _ in range(8):
        lazy = socket.create_connection(("127.0.0.1", server.port))
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(head.encode() + body)
        sockets.append(lazy)
    answer = server.run(controller="choice", controller_arg=["a", "b"], prompt="Once")
    assert answer["forks"][0]["text"] in ("a", "b")
    for lazy in sockets:
        lazy.close()
    _settled(server)


def test_huge_bodies_are_refused_before_they_are_in_memory(server: Serving) -> None:
    def memory() -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) >> 10

    before = memory()
    piece = b'{"prompt": "' + b"a" * (1 << 20)
    for path, token in (("/v1/run", None), ("/v1/chat/completions", None), ("/v1/controllers", None)):
        with server.client(token) as client:
            announced = client.post(path, content=bytes(100 << 20))
            assert announced.status_code == (401 if path == "/v1/controllers" else 413), announced.text
            with contextlib.suppress(httpx2.WriteError):  # the server need not read to the end
                sent = client.post(path, content=(piece for _ in range(100)))
                assert sent.status_code in (401, 413), sent.text
    assert memory() < before + 64
    with server.client() as client:
        assert client.get("/ready").status_code == 200


def test_incomplete_and_invalid_requests_do_no_harm(server: Serving) -> None:
    for data in (
        b"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"\x16\x03\x01" + bytes(200),
        b"POST /v1/run HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(data)
    with server.client() as client:
        assert client.get("/ready").status_code == 200


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a small cache: two requests generate, five wait, of these three from one address."""
    bounds = {"max-streams": 2, "max-waiting": 5, "max-waiting-each": 3, "kv-cache-tokens": 1024}
    options = ["--loopback-apart", *(f"--{name}={most}" for name, most in bounds.items())]
    with Serving(tmp_path_factory.mktemp("narrow") / "log", *options) as server:
        yield server


def _from(server: Serving, address: str) -> httpx2.AsyncClient:
    """Returns a client at another address of this machine, which counts as another caller."""
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    return httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE, transport=transport)


async def _answers(client: httpx2.AsyncClient, count: int, tokens: int = 20) -> list[httpx2.Response]:
    """Sends `count` requests at the same time and returns the answers."""
    body = {"prompt": "Once upon a time", "max_tokens": tokens, "stream": False}
    return await asyncio.gather(*(client.post("/v1/run", json=body) for _ in range(count)))


def test_more_requests_than_may_wait_are_refused(narrow: Serving) -> None:
    async def all_at_once() -> list[list[httpx2.Response]]:
        clients = [_from(narrow, f"127.0.0.{number}") for number in (2, 3, 4)]
        first = asyncio.create_task(_answers(clients[0], 12, 60))
        while sum(narrow.metrics().get(name, 0) for name in LIVE) < 2:
            await asyncio.sleep(0.05)
        found = await asyncio.gather(first, *(_answers(client, 12) for client in clients[1:]))
        for client in clients:
            await client.aclose()
        return found

    one, *others = asyncio.run(all_at_once())
    refused = [answer for answer in one if answer.status_code == 429]
    assert sum(answer.status_code == 200 for answer in one) == 5 and len(refused) == 7
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert all(answer.json()["error"]["code"] == "too_many_waiting" for answer in refused)
    full = [answer for answers in others for answer in answers if answer.status_code == 503]
    assert full and all(answer.json()["error"]["code"] == "overloaded" for answer in full)
    # the two places that the first caller could not take
    assert sum(answer.status_code == 200 for answers in others for answer in answers) >= 2


def test_busy_caller_does_not_delay_another(narrow: Serving) -> None:
    ended: list[str] = []

    async def ask(client: httpx2.AsyncClient, name: str) -> None:
        (answer,) = await _answers(client, 1, 24)
        assert answer.status_code == 200, answer.text
        ended.append(name)

    async def all_at_once() -> None:
        async with _from(narrow, "127.0.0.5") as greedy, _from(narrow, "127.0.0.6") as modest:
            first = [asyncio.create_task(ask(greedy, "greedy")) for _ in range(5)]
            while sum(narrow.metrics().get(name, 0) for name in LIVE) < 2:
                await asyncio.sleep(0.05)
            await asyncio.gather(*first, ask(modest, "modest"))

    asyncio.run(all_at_once())
    assert len(ended) == 6 and "modest" in ended[:4], ended


def test_requests_with_more_answers_than_places_are_refused(narrow: Serving) -> None:
    chat = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}
    with narrow.client() as client:
        for path, body in (
            ("/v1/chat/completions", {**chat, "n": 3}),
            ("/v1/completions", {"prompt": "Hi", "n": 3}),
            ("/v1/run", {"prompt": "Hi", "n": 3}),
        ):
            answer = client.post(path, json={**body, "max_tokens": 2})
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["param"] == "n"
            assert re.search(r"at most 2 .*at a time", answer.text)
    ran = narrow.run(prompt="Hi", n=2, max_tokens=2, temperature=1.0)
    assert len(ran["forks"]) == 2


def test_prompt_longer_than_the_cache_is_refused(narrow: Serving) -> None:
    assert "the key-value cache has room for 1024 tokens" in narrow.text()
    with narrow.client() as client:
        long = client.post("/v1/run", json={"prompt": [5] * 1024, "stream": False})
    assert long.status_code == 400 and long.json()["error"]["code"] == "context_length_exceeded"
