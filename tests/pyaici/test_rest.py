"""The clients for HTTP, blocking and asynchronous: valid and invalid answers of a server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from pyaici import rest_types
from pyaici.engines.rest_events import end_json, usage_json
from pyaici.rest import AsyncRestClient, RestClient, ServerError
from pyaici.server.apis import controllers
from pyaici.server.apis.run.routes import RunRequest
from tests.pyaici.scripted_server import answering, refusal, stream


class Blocking(contextlib.AbstractContextManager["Blocking"]):
    """An `AsyncRestClient` with the methods of a `RestClient`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = AsyncRestClient(*args, **options)
        self._loop = asyncio.Runner()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self._loop.run(getattr(self._client, name)(*args, **options))

    def run(self, **request: Any) -> Iterator[Any]:
        events = self._client.run(**request)
        while (event := self._loop.run(anext(events, None))) is not None:
            yield event

    def __exit__(self, *_: object) -> None:
        self.close()
        self._loop.close()


@pytest.fixture(params=[RestClient, Blocking], ids=["blocking", "asynchronous"])
def client_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Returns a client for an address."""
    kind: Callable[..., Any] = request.param
    return kind


#: characters at which Python ends lines, and JSON and server-sent events do not
LINE_ENDS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \r"


def test_texts_may_have_all_kinds_of_line_ends(client_of: Callable[..., Any]) -> None:
    with answering([(200, stream({"text": LINE_ENDS}, {"text": "\n"}, "[DONE]"))]) as (url, seen):
        with client_of(url) as client:
            assert [event["text"] for event in client.run(prompt="x", seed=3)] == [LINE_ENDS, "\n"]
    assert seen == [("POST", "/v1/run", {"prompt": "x", "seed": 3, "stream": True})]


def test_truncated_stream_is_an_error(client_of: Callable[..., Any]) -> None:
    with answering([(200, stream({"text": "a"}))]) as (url, _), client_of(url) as client:
        events = client.run(prompt="x")
        assert next(events) == {"text": "a"}
        with pytest.raises(ServerError, match="ended the stream before the run was finished"):
            next(events)


def test_error_has_status_code_and_log(client_of: Callable[..., Any]) -> None:
    with answering([(400, refusal("no\n", "argument", "I read it\n"))] * 2) as (url, _):
        with client_of(url) as client:
            for call in (lambda: next(client.run(prompt="x")), lambda: client.describe("x")):
                with pytest.raises(ServerError, match="no") as caught:
                    call()
                error = caught.value
                assert (error.status, error.reason) == (400, "argument")
                assert error.detail["log"] == "I read it\n"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "not an aici server: its answer is not JSON"),
        (404, b"<html>", "answered 404 Not Found"),
        (404, b'{"detail": "Not Found"}', "answered 404 Not Found"),
        (302, b"", "answered 302 Found"),
        (502, b'{"error": null}', "answered 502 Bad Gateway"),
    ],
)
def test_answers_of_other_servers_are_errors(
    client_of: Callable[..., Any], status: int, body: bytes, words: str
) -> None:
    with answering([(status, body)] * 2) as (url, _), client_of(url) as client:
        with pytest.raises(ServerError, match=words) as caught:
            client.list()
        assert caught.value.status == status
        with pytest.raises(ServerError):
            list(client.run(prompt="x"))


def test_names_in_paths_are_quoted(client_of: Callable[..., Any]) -> None:
    with answering([(200, b"{}")] * 2) as (url, seen), client_of(url) as client:
        client.describe("../a b")
        client.tag("mine", "a/b?c")
    assert [path for _, path, _ in seen] == ["/v1/controllers/..%2Fa%20b", "/v1/tags/a%2Fb%3Fc"]


@pytest.mark.parametrize("token", ["sec ret", "secret\n", "s\xe9cret", "secret\r\nX: y"])
def test_invalid_token_is_refused_and_not_shown(client_of: Callable[..., Any], token: str) -> None:
    with pytest.raises(ServerError, match="the token has an invalid character") as caught:
        client_of("http://127.0.0.1:1", token)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "", "ftp://x", "http://[::1", "http://x:port"])
def test_invalid_address_is_refused(client_of: Callable[..., Any], url: str) -> None:
    with pytest.raises(ServerError, match="is not the address of a server"):
        client_of(url)


def test_all_pages_of_a_list_are_read(client_of: Callable[..., Any]) -> None:
    first = b'{"object": "list", "data": [{"id": "a"}], "bundled": [], "has_more": true}'
    last = b'{"object": "list", "data": [{"id": "b"}], "bundled": [], "has_more": false}'
    with answering([(200, first), (200, last)]) as (url, seen), client_of(url) as client:
        found = client.list()
    assert [each["id"] for each in found["data"]] == ["a", "b"] and found["has_more"] is False
    assert [path for _, path, _ in seen] == ["/v1/controllers", "/v1/controllers?after=a"]


def test_a_whole_run_is_one_answer(client_of: Callable[..., Any]) -> None:
    with answering([(200, b'{"object": "run.result"}')]) as (url, seen), client_of(url) as client:
        assert client.run_to_end(prompt="x", temperature=0.5) == {"object": "run.result"}
    assert seen == [("POST", "/v1/run", {"prompt": "x", "temperature": 0.5, "stream": False})]


def test_a_server_that_does_not_answer_and_a_closed_client(client_of: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with client_of(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1) as client:
            for call in (client.list, lambda: next(client.run(prompt="x"))):
                with pytest.raises(ServerError, match="no answer from the server at") as caught:
                    call()
                assert caught.value.status == 0
            client.close()
            with pytest.raises(ServerError, match="the client has been closed"):
                client.list()


def test_invalid_timeout_is_refused(client_of: Callable[..., Any]) -> None:
    with pytest.raises(ServerError, match="timeout is 0; it must be a positive number of seconds"):
        client_of("http://127.0.0.1:1", timeout=0)


# -- types -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "model", "others"),
    [
        (rest_types.RunFields, RunRequest, {"stream", "calls"}),
        (rest_types.Script, controllers.ScriptBody, set()),
        (rest_types.Controller, controllers.StoredScript, set()),
        (rest_types.Bundled, controllers.Bundled, set()),
        (rest_types.ControllerList, controllers.ControllerList, set()),
    ],
)
def test_types_have_the_fields_of_the_server(kind: type, model: type[BaseModel], others: set[str]) -> None:
    assert get_type_hints(kind).keys() == model.model_fields.keys() - others


def test_types_have_the_members_of_the_last_event() -> None:
    end = end_json([], usage_json(1, 2, 3, 4), lambda seq: seq, str)
    assert get_type_hints(rest_types.RunEnd).keys() == {"object", *end}
    assert get_type_hints(rest_types.Usage).keys() == end["usage"].keys()
    assert get_type_hints(rest_types.Timing).keys() == end["timing"].keys()
