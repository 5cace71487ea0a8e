"""JSON bodies: large ones are parsed in a thread, within limits, and answered like small ones."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, field_validator

from pyaici.server.apis import controllers, json_bodies
from pyaici.server.apis.cpc import routes as cpc
from pyaici.server.apis.fields import MAX_FIELDS
from pyaici.server.apis.json_bodies import (
    MAX_CONTAINERS,
    SMALL_BODY,
    JsonRoute,
    count_containers,
    parse_json_body,
)
from pyaici.server.apis.openai import chat, completions
from pyaici.server.apis.run import routes as run
from pyaici.server.http.errors import ApiError
from pyaici.server.http.handlers import add_handlers
from pyaici.server.http.users import Role, User
from pyaici.server.scheduling.threads import Reading
from pyaici.server.settings import ServerSettings
from tests.pyaici.server.serving import Serving

#: white space after a JSON value, which makes any body a large one
PADDING = b" " * (SMALL_BODY + 1)
JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Hi"}]
#: by path: a valid body, and a field that accepts any JSON
ROUTES = {
    "/v1/run": ({"prompt": "a", "max_tokens": 1, "stream": False}, "controller_arg"),
    "/v1/completions": ({"prompt": "a", "max_tokens": 1}, "logit_bias"),
    "/v1/chat/completions": ({"messages": HELLO, "max_tokens": 1}, "metadata"),
    "/api/v1/messages": ({"model": "default", "messages": HELLO, "max_tokens": 1}, "metadata"),
    "/cpc": ({"prefix": "a", "max_new_tokens": 1}, "context"),
    "/v1/scripts": ({"language": "python", "source": "a"}, "name"),
}
#: bodies that every route refuses
REFUSED = {
    "no JSON": b'{"prompt": ]}',
    "second value": b"{} {}",
    "no UTF-8": b'{"prompt": "\xff"}',
    "long number": b'{"prompt": ' + b"1" * 5000 + b"}",
    "deep": b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "surrogate": b'{"prompt": "\\ud800", "prefix": "\\ud800"}',
    "array": b"[]",
    "null": b"null",
    "out of bounds": b'{"temperature": -1}',
    "wrong types": b'{"prompt": {}, "messages": 1, "prefix": 2, "source": 3}',
    "wrong items": b'{"prompt": [{}], "messages": [{}], "prefix": "", "language": "cobol"}',
    "unknown field": b'{"promptt": 1, "prefixx": 1, "max_tokenz": 1, "sourc": "a"}',
    "unknown fields": json.dumps({f"x{n}": 1 for n in range(2 * MAX_FIELDS)}).encode(),
}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("name", REFUSED)
def test_large_bodies_are_refused_like_small_ones(
    server: Serving, tokens: dict[str, str], path: str, name: str
) -> None:
    with server.client(tokens["ada"]) as client:
        small = client.post(path, content=REFUSED[name], headers=JSON)
        large = client.post(path, content=REFUSED[name] + PADDING, headers=JSON)
    assert 400 <= small.status_code < 500, small.text
    assert (large.status_code, large.json()) == (small.status_code, small.json())
    assert len(large.content) < 1000


@pytest.mark.parametrize("path", ROUTES)
def test_large_bodies_must_be_declared_as_json(server: Serving, tokens: dict[str, str], path: str) -> None:
    content = json.dumps(ROUTES[path][0]).encode()
    for headers in ({}, {"content-type": "text/plain"}):
        with server.client(tokens["ada"]) as client:
            small = client.post(path, content=content, headers=headers)
            large = client.post(path, content=content + PADDING, headers=headers)
        assert small.status_code == 400 and small.json()["error"]
        assert (large.status_code, large.json()) == (small.status_code, small.json())


@pytest.mark.parametrize("path", ROUTES)
def test_large_valid_bodies_are_answered(server: Serving, tokens: dict[str, str], path: str) -> None:
    body = ROUTES[path][0]
    with server.client(tokens["ada"]) as client:
        answer = client.post(path, content=json.dumps(body).encode() + PADDING, headers=JSON)
    assert answer.status_code in (200, 201), answer.text


@pytest.mark.parametrize("path", ROUTES)
def test_too_many_containers_are_refused(server: Serving, tokens: dict[str, str], path: str) -> None:
    body, field = ROUTES[path]
    content = json.dumps(body)[:-1].encode() + f', "{field}": ['.encode()
    content += b"[]," * (MAX_CONTAINERS + 1) + b"0]}"
    with server.client(tokens["ada"]) as client:
        answer = client.post(path, content=content, headers=JSON)
    assert answer.status_code == 400, answer.text[:1000]
    assert str(MAX_CONTAINERS) in answer.json()["error"]["message"]
    assert len(answer.content) < 1000


def test_long_name_of_an_unknown_model_is_shortened(server: Serving) -> None:
    body = {"model": "m" * 1_000_000, "messages": HELLO}
    with server.client() as client:
        answer = client.post("/api/v1/messages", json=body)
    assert answer.status_code == 404 and len(answer.content) < 1000


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/run", "/api/v1/messages"])
def test_requests_with_hundreds_of_misspelled_fields_are_answered(server: Serving, path: str) -> None:
    """No name is similar enough to be refused where unknown fields are allowed, but each is compared."""
    body = ROUTES[path][0]
    odd = {f"frequency_penxxxxxxx_{number}": 1 for number in range(MAX_FIELDS - 1 - len(body))}
    with server.client() as client:
        answer = client.post(path, json={**body, **odd})
        near = client.post(path, json={"max_tokenz": 1, **body, **odd})
    assert answer.status_code == (400 if path == "/v1/run" else 200), answer.text
    assert near.status_code == 400 and "did you mean max_tokens" in near.text
    assert len(near.content) < 1000


def test_every_route_with_a_json_body_parses_large_ones_in_a_thread() -> None:
    """`POST /api/v1/messages` is not here: its handler calls `parse_body` itself."""
    found = [
        route
        for part in (controllers, run, completions, chat, cpc)
        for route in part.router.routes
        if isinstance(route, APIRoute) and route.body_field is not None
    ]
    assert len(found) == 9
    assert all(isinstance(route, JsonRoute) for route in found)


class _Body(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _remember_thread(cls, text: str) -> str:
        _threads.append(threading.current_thread())
        return text


_threads: list[threading.Thread] = []
_router = APIRouter(route_class=JsonRoute)


@_router.post("/echo")
async def _echo(request: Request, body: _Body) -> dict[str, int]:
    assert json.loads(await request.body()) == {"text": body.text}
    return {"length": len(body.text)}


@pytest.mark.parametrize(
    ("size", "in_loop"), [(10, True), (SMALL_BODY, False), (1 << 20, False)], ids=["small", "64K", "1M"]
)
def test_only_small_bodies_are_validated_in_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, size: int, in_loop: bool
) -> None:
    parsed: list[threading.Thread] = []

    def noted(data: bytes) -> Any:
        parsed.append(threading.current_thread())
        return parse_json_body(data)

    monkeypatch.setattr(json_bodies, "parse_json_body", noted)
    _threads.clear()

    async def send() -> tuple[httpx2.Response, threading.Thread]:
        app = FastAPI()
        app.include_router(_router)
        add_handlers(app)
        reading = Reading(ServerSettings())
        app.state.service = SimpleNamespace(reading=reading)

        async def with_user(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("state", {})["user"] = User("ada", Role.RUN)
            await app(scope, receive, send)

        transport = httpx2.ASGITransport(app=with_user)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/echo", json={"text": "a" * size})
        reading.close()
        return answer, threading.current_thread()

    answer, loop_thread = asyncio.run(send())
    assert answer.status_code == 200 and answer.json() == {"length": size}
    assert len(_threads) == 1, "a model is not validated twice"
    assert (_threads[0] is loop_thread) == in_loop
    assert parsed == ([] if in_loop else _threads)


@pytest.mark.parametrize(
    ("part", "containers"),
    [
        (b"[],", 1),
        (b'{"a":[1]},', 2),
        (b'"[{",', 0),
        (b'"\\"[",', 0),
        (b'"\\\\",[],', 1),
        (b'"\\\\\\"[",', 0),
        (b'"\\n",{"[":"]"},', 1),
        ('"\u00e4[",[],'.encode(), 1),
    ],
)
def test_brackets_in_strings_are_not_counted(part: bytes, containers: int) -> None:
    count = MAX_CONTAINERS + 1
    data = b"[" + part * count + b"0]"
    assert json.loads(data)
    assert count_containers(data) == 1 + containers * count


def test_containers_are_counted_in_other_encodings() -> None:
    """Escaped quotes have other bytes in these encodings, and must not hide the brackets after them."""
    text = '["\\"",' + "[]," * (MAX_CONTAINERS + 1) + "0]"
    for encoding in ("utf-8", "utf-16", "utf-16-be", "utf-32-le"):
        with pytest.raises(ApiError, match="objects and arrays"):
            parse_json_body(text.encode(encoding))


def test_allowed_number_of_containers_is_accepted() -> None:
    assert len(parse_json_body(b"[" + b"[]," * (MAX_CONTAINERS - 1) + b"0]")) == MAX_CONTAINERS
    assert len(parse_json_body(b'["' + b"[" * (1 << 20) + b'"]')[0]) == 1 << 20
