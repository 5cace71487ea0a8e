"""A client of `aici serve`: controllers and runs over HTTP, for programs and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2

from aicirt.contract.errors import AiciError
from aicirt.system.files import Closing
from pyaici.client.calls import Function, call_function, describe, in_thread

#: a run may wait for its turn, and for its controller to be compiled
_TIMEOUT = httpx2.Timeout(600, connect=10)


class ServerError(AiciError):
    """The server has refused a request, or cannot be reached.

    `status` is the HTTP status, 0 if there was no answer. `reason` is the server's error code, for example
    "unknown_module" or "argument", or empty if it sent none.
    """

    code = "server"

    def __init__(self, message: str, status: int = 0, reason: str = "", **detail: Any) -> None:
        super().__init__(message, **detail)
        self.status = status
        self.reason = reason


class RestClient(Closing):
    """Talks to one server. Use as a context manager; every method raises ServerError.

    ::

        with RestClient("http://127.0.0.1:8000") as client:
            for event in client.run(controller="regex", controller_arg="[0-9]+", prompt="My age is "):
                ...
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        """`url`: the server's address, without a path. `token`: as `aici users add` prints it."""
        if not url.startswith(("http://", "https://")):
            raise ServerError(
                f"{url!r} is not the address of a server: it must begin with http:// or https://"
            )
        if token and not re.fullmatch("[!-~]+", token):
            # the library's error message would show the token
            raise ServerError(
                "the token has an invalid character, for example a space, a line end or an accented letter"
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT)
        except (httpx2.InvalidURL, ValueError) as error:
            raise ServerError(f"{url!r} is not the address of a server: {error}") from None
        self._url = url

    # -- controllers ----------------------------------------------------------------------------

    def upload(self, wasm: bytes) -> dict[str, Any]:
        """Uploads a module; returns its description, as `GET /v1/controllers/{id}` does."""
        return self._call("POST", "/v1/controllers", content=wasm)

    def upload_script(self, language: str, source: str, name: str) -> dict[str, Any]:
        """Uploads a script; returns its description. `language`: "python" or "javascript"."""
        return self._call("POST", "/v1/scripts", json={"language": language, "source": source, "name": name})

    def describe(self, name: str) -> dict[str, Any]:
        """Returns the description of a module (id or tag)."""
        return self._call("GET", f"/v1/controllers/{_quote(name)}")

    def list(self) -> dict[str, Any]:
        """Returns all modules that are visible to the user, and bundled controllers."""
        answer = page = self._call("GET", "/v1/controllers")
        while page.get("has_more"):
            page = self._call("GET", "/v1/controllers", params={"after": page["data"][-1]["id"]})
            answer["data"] += page["data"]
        return {**answer, "has_more": False}

    def remove(self, name: str) -> None:
        """Withdraws the upload of a module (id or tag)."""
        self._call("DELETE", f"/v1/controllers/{_quote(name)}")

    def tag(self, module: str, tag: str) -> dict[str, Any]:
        """Gives a module a tag; returns its description."""
        return self._call("PUT", f"/v1/tags/{_quote(tag)}", json={"controller": module})

    def untag(self, tag: str) -> None:
        """Removes a tag."""
        self._call("DELETE", f"/v1/tags/{_quote(tag)}")

    # -- runs -------------------------------------------------------------------------------------

    def run(
        self, *, calls: Mapping[str, Function] | Sequence[dict[str, Any]] | None = None, **request: Any
    ) -> Generator[dict[str, Any], None, None]:
        """Yields the events of a run as they come. The arguments are the fields of `POST /v1/run`.

        `calls`: functions that answer the controller's calls, by name, which run in threads; or descriptions
        of calls that the caller answers (`answer_call`), as events have them. Closing the generator cancels
        the run.
        """
        if not isinstance(calls, Mapping):
            yield from self._stream_run(request if calls is None else {**request, "calls": calls})
            return
        request["calls"] = [describe(name, function) for name, function in calls.items()]
        for event in self._stream_run(request):
            for call in event.get("calls", ()):
                if call.get("answer"):
                    in_thread(partial(self._answer_with, call, calls[call["name"]]))
            yield event

    def answer_call(self, id: str, value: Any = None, *, error: tuple[str, str] | None = None) -> None:
        """Answers a call of a run: with a value, or with the code and message of an error."""
        answer = {"value": value} if error is None else {"error": {"code": error[0], "message": error[1]}}
        self._call("POST", f"/v1/run/calls/{_quote(id)}", json=answer)

    def send_message(self, run: str, value: Any) -> None:
        """Sends a message to the run of this user that has this `name`, for its controller's `receive`."""
        self._call("POST", f"/v1/run/messages/{_quote(run)}", json={"value": value})

    def _answer_with(self, call: dict[str, Any], function: Function) -> None:
        value, error = call_function(function, call["arguments"])
        try:
            self.answer_call(call["id"], value, error=error)
        except ServerError as problem:
            if problem.status and problem.reason != "unknown_call":  # else the run has ended
                self.answer_call(call["id"], error=("failed", f"the answer was refused: {problem.message}"))
        except (TypeError, ValueError) as problem:
            self.answer_call(call["id"], error=("failed", f"the answer is not JSON: {problem}"))

    def _stream_run(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        try:
            with self._http.stream("POST", "/v1/run", json={**request, "stream": True}) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer)
                for line in _lines(answer.iter_bytes()):
                    if line == b"data: [DONE]":
                        return
                    if line.startswith(b"data: "):
                        yield json.loads(line.removeprefix(b"data: "))
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        raise ServerError(
            f"the server at {self._url} ended the stream before the run was finished: it may have stopped"
        )

    # -- the rest ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **options)
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        except RuntimeError:
            if not self._http.is_closed:
                raise
            raise ServerError("the client has been closed: make another one") from None
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return dict(answer.json())
        except ValueError:
            raise ServerError(
                f"{self._url} is not an aici server: its answer is not JSON", answer.status_code
            ) from None

    def _broken(self, error: Exception) -> ServerError:
        return ServerError(f"no answer from the server at {self._url}: {error or type(error).__name__}")


def _quote(name: str) -> str:
    return quote(name, safe="")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the lines of server-sent events, which end with line feeds.

    The library's own line iterator also splits at characters like U+2028, which JSON may contain unescaped.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _refusal(answer: httpx2.Response) -> ServerError:
    """Returns the error that an answer reports."""
    try:
        error = answer.json()["error"]
        log = {"log": error["log"]} if error.get("log") else {}
        return ServerError(str(error["message"]), answer.status_code, str(error.get("code") or ""), **log)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServerError(
            f"the server answered {answer.status_code} {answer.reason_phrase}", answer.status_code
        )
