"""The client for HTTP: valid and invalid answers of a server."""

from __future__ import annotations

import pytest

from pyaici.rest import RestClient, ServerError
from tests.pyaici.scripted_server import answering, refusal, stream

#: characters at which Python ends lines, and JSON and server-sent events do not
LINE_ENDS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \r"


def test_texts_may_have_all_kinds_of_line_ends() -> None:
    with answering([(200, stream({"text": LINE_ENDS}, {"text": "\n"}, "[DONE]"))]) as (url, seen):
        with RestClient(url) as client:
            assert [event["text"] for event in client.run(prompt="x", seed=3)] == [LINE_ENDS, "\n"]
    assert seen == [("POST", "/v1/run", {"prompt": "x", "seed": 3, "stream": True})]


def test_truncated_stream_is_an_error() -> None:
    with answering([(200, stream({"text": "a"}))]) as (url, _), RestClient(url) as client:
        events = client.run(prompt="x")
        assert next(events) == {"text": "a"}
        with pytest.raises(ServerError, match="ended the stream before the run was finished"):
            next(events)


def test_error_has_status_code_and_log() -> None:
    with answering([(400, refusal("no\n", "argument", "I read it\n"))] * 2) as (url, _):
        with RestClient(url) as client:
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
def test_answers_of_other_servers_are_errors(status: int, body: bytes, words: str) -> None:
    with answering([(status, body)] * 2) as (url, _), RestClient(url) as client:
        with pytest.raises(ServerError, match=words) as caught:
            client.list()
        assert caught.value.status == status
        with pytest.raises(ServerError):
            list(client.run(prompt="x"))


def test_names_in_paths_are_quoted() -> None:
    with answering([(200, b"{}")] * 2) as (url, seen), RestClient(url) as client:
        client.describe("../a b")
        client.tag("mine", "a/b?c")
    assert [path for _, path, _ in seen] == ["/v1/controllers/..%2Fa%20b", "/v1/tags/a%2Fb%3Fc"]


@pytest.mark.parametrize("token", ["sec ret", "secret\n", "s\xe9cret", "secret\r\nX: y"])
def test_invalid_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ServerError, match="the token has an invalid character") as caught:
        RestClient("http://127.0.0.1:1", token)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "", "ftp://x", "http://[::1", "http://x:port"])
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ServerError, match="is not the address of a server"):
        RestClient(url)
