"""Clients of `aici serve`, blocking and asynchronous: controllers and runs over HTTP.

The objects that they send and return are in `pyaici.rest_types`.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, Unpack
from urllib.parse import quote

import httpx2

from aicirt.contract.errors import AiciError
from aicirt.system.files import Closing
from pyaici.client.calls import Function, call_function, describe, in_thread
from pyaici.rest_types import Controller, ControllerList, RunEvent, RunFields, RunResult

#: seconds without a byte of an answer: a run may wait for its turn, and for its controller to be compiled
TIMEOUT_S = 600.0
#: seconds for a connection
_CONNECT_S = 10.0

_Described = TypeVar("_Described")
_Result = TypeVar("_Result")
_Nothing = TypeVar("_Nothing")
#: functions that answer calls, by name; or descriptions of calls that the caller answers
Calls = Mapping[str, Function] | Sequence[dict[str, Any]]


class ServerError(AiciError):
    """The server has refused a request, or cannot be reached.

    `status` is the HTTP status, 0 if there was no answer. `reason` is the server's error code, for example
    "unknown_controller" or "argument", or empty if it sent none.
    """

    code = "server"

    def __init__(self, message: str, status: int = 0, reason: str = "", **detail: Any) -> None:
        super().__init__(message, **detail)
        self.status = status
        self.reason = reason


class _Routes(Generic[_Described, _Result, _Nothing]):
    """The methods that both clients share: each sends one request, and returns or promises its answer."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT_S) -> None:
        """Connects at the first request.

        `url`: the server's address, without a path. `token`: as `aici users add` prints it. `timeout`:
        seconds without a byte of an answer, after which ServerError is raised.
        """
        if not url.startswith(("http://", "https://")):
            raise ServerError(
                f"{url!r} is not the address of a server: it must begin with http:// or https://"
            )
        if token and not re.fullmatch("[!-~]+", token):
            # the library's error message would show the token
            raise ServerError(
                "the token has an invalid character, for example a space, a line end or an accented letter"
            )
        if not timeout > 0:
            raise ServerError(f"timeout is {timeout}; it must be a positive number of seconds")
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        waits = httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_S))
        try:
            self._connect(base_url=url, headers=headers, timeout=waits)
        except (httpx2.InvalidURL, ValueError) as error:
            raise ServerError(f"{url!r} is not the address of a server: {error}") from None

    @abstractmethod
    def _connect(self, **options: Any) -> None:
        """Makes the library's client."""

    @abstractmethod
    def _request(self, method: str, path: str, **options: Any) -> Any:
        """Sends a request, and returns or promises its answer."""

    @abstractmethod
    def _do(self, method: str, path: str, **options: Any) -> _Nothing:
        """The same for an answer that says nothing."""

    # -- controllers ----------------------------------------------------------------------------

    def upload(self, wasm: bytes) -> _Described:
        """Uploads a module; returns its description, as `GET /v1/controllers/{id}` does."""
        return self._described("POST", "/v1/controllers", content=wasm)

    def upload_script(self, language: str, source: str, name: str) -> _Described:
        """Uploads a script; returns its description. `language`: "python" or "javascript"."""
        body = {"language": language, "source": source, "name": name}
        return self._described("POST", "/v1/scripts", json=body)

    def describe(self, name: str) -> _Described:
        """Returns the description of a controller (id or tag)."""
        return self._described("GET", f"/v1/controllers/{_quote(name)}")

    def remove(self, name: str) -> _Nothing:
        """Withdraws the upload of a controller (id or tag)."""
        return self._do("DELETE", f"/v1/controllers/{_quote(name)}")

    def tag(self, controller: str, tag: str) -> _Described:
        """Gives a controller a tag; returns its description."""
        return self._described("PUT", f"/v1/tags/{_quote(tag)}", json={"controller": controller})

    def untag(self, tag: str) -> _Nothing:
        """Removes a tag."""
        return self._do("DELETE", f"/v1/tags/{_quote(tag)}")

    # -- runs -------------------------------------------------------------------------------------

    def run_to_end(self, **request: Unpack[RunFields]) -> _Result:
        """Runs a request to its end; returns all texts. The arguments are the fields of `POST /v1/run`."""
        answer: _Result = self._request("POST", "/v1/run", json={**request, "stream": False})
        return answer

    def answer_call(self, id: str, value: Any = None, *, error: tuple[str, str] | None = None) -> _Nothing:
        """Answers a call of a run: with a value, or with the code and message of an error."""
        answer = {"value": value} if error is None else {"error": {"code": error[0], "message": error[1]}}
        return self._do("POST", f"/v1/run/calls/{_quote(id)}", json=answer)

    def send_message(self, run: str, value: Any) -> _Nothing:
        """Sends a message to the run of this user that has this `name`, for its controller's `receive`."""
        return self._do("POST", f"/v1/run/messages/{_quote(run)}", json={"value": value})

    # -- the rest ---------------------------------------------------------------------------------

    def _described(self, method: str, path: str, **options: Any) -> _Described:
        answer: _Described = self._request(method, path, **options)
        return answer

    def _object_of(self, answer: httpx2.Response) -> Any:
        """Returns the object of an answer. Raises ServerError."""
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

    def _cut_short(self) -> ServerError:
        return ServerError(
            f"the server at {self._url} ended the stream before the run was finished: it may have stopped"
        )


class RestClient(_Routes[Controller, RunResult, None], Closing):
    """Talks to one server. Use as a context manager; every method raises ServerError.

    ::

        with RestClient("http://127.0.0.1:8000") as client:
            for event in client.run(controller="regex", controller_arg="[0-9]+", prompt="My age is "):
                ...
    """

    def list(self) -> ControllerList:
        """Returns all uploads that are visible to the user, and bundled controllers."""
        answer: ControllerList = self._request("GET", "/v1/controllers")
        page = answer
        while page.get("has_more"):
            page = self._request("GET", "/v1/controllers", params={"after": page["data"][-1]["id"]})
            answer["data"] += page["data"]
        answer["has_more"] = False
        return answer

    def run(
        self, *, calls: Calls | None = None, **request: Unpack[RunFields]
    ) -> Generator[RunEvent, None, None]:
        """Yields the events of a run as they come. The arguments are the fields of `POST /v1/run`.

        `calls`: functions that answer the controller's calls, by name, which run in threads; or descriptions
        of calls that the caller answers (`answer_call`), as events have them. Closing the generator cancels
        the run.
        """
        events = _Events()
        functions = calls if isinstance(calls, Mapping) else {}
        try:
            with self._http.stream("POST", "/v1/run", json=_run_body(request, calls)) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer)
                for chunk in answer.iter_bytes():
                    for event in events.feed(chunk):
                        for call in _asked(event, functions):
                            in_thread(partial(self._answer_with, call, functions[call["name"]]))
                        yield event
                    if events.ended:
                        return
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        raise self._cut_short()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _connect(self, **options: Any) -> None:
        self._http = httpx2.Client(**options)

    def _request(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(method, path, **options)
        except (httpx2.HTTPError, RuntimeError) as error:
            raise _failure(error, self._http) or self._broken(error) from None
        return self._object_of(answer)

    def _do(self, method: str, path: str, **options: Any) -> None:
        self._request(method, path, **options)

    def _answer_with(self, call: dict[str, Any], function: Function) -> None:
        value, error = call_function(function, call["arguments"])
        try:
            self.answer_call(call["id"], value, error=error)
        except (ServerError, TypeError, ValueError) as problem:
            if reason := _why_refused(problem):
                self.answer_call(call["id"], error=("failed", reason))


class AsyncRestClient(_Routes[Awaitable[Controller], Awaitable[RunResult], Awaitable[None]]):
    """The same as `RestClient` for programs with asyncio: its methods are awaited, `run` is iterated.

    ::

        async with AsyncRestClient("http://127.0.0.1:8000") as client:
            async for event in client.run(controller="regex", controller_arg="[0-9]+", prompt="My age is "):
                ...
    """

    async def __aenter__(self) -> AsyncRestClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def list(self) -> ControllerList:
        """Returns all uploads that are visible to the user, and bundled controllers."""
        answer: ControllerList = await self._request("GET", "/v1/controllers")
        page = answer
        while page.get("has_more"):
            page = await self._request("GET", "/v1/controllers", params={"after": page["data"][-1]["id"]})
            answer["data"] += page["data"]
        answer["has_more"] = False
        return answer

    async def run(
        self, *, calls: Calls | None = None, **request: Unpack[RunFields]
    ) -> AsyncGenerator[RunEvent, None]:
        """Yields the events of a run as they come, as `RestClient.run` does."""
        events, answers = _Events(), set[asyncio.Task[None]]()
        functions = calls if isinstance(calls, Mapping) else {}
        try:
            async with self._http.stream("POST", "/v1/run", json=_run_body(request, calls)) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _refusal(answer)
                async for chunk in answer.aiter_bytes():
                    for event in events.feed(chunk):
                        for call in _asked(event, functions):
                            answers.add(task := asyncio.create_task(self._answer_with(call, functions)))
                            task.add_done_callback(answers.discard)
                        yield event
                    if events.ended:
                        return
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        finally:
            for task in answers:
                task.cancel()
        raise self._cut_short()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _connect(self, **options: Any) -> None:
        self._http = httpx2.AsyncClient(**options)

    async def _request(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = await self._http.request(method, path, **options)
        except (httpx2.HTTPError, RuntimeError) as error:
            raise _failure(error, self._http) or self._broken(error) from None
        return self._object_of(answer)

    async def _do(self, method: str, path: str, **options: Any) -> None:
        await self._request(method, path, **options)

    async def _answer_with(self, call: dict[str, Any], functions: Mapping[str, Function]) -> None:
        function = functions[call["name"]]
        value, error = await asyncio.to_thread(call_function, function, call["arguments"])
        try:
            await self.answer_call(call["id"], value, error=error)
        except (ServerError, TypeError, ValueError) as problem:
            if reason := _why_refused(problem):
                await self.answer_call(call["id"], error=("failed", reason))


class _Events:
    """Reads the events of a run out of the bytes of its stream.

    The library's own line iterator also splits at characters like U+2028, which JSON may contain unescaped.
    """

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""

    def feed(self, chunk: bytes) -> Generator[RunEvent, None, None]:
        """Yields the events that are complete now, up to the one that says that there are no more."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line == b"data: [DONE]":
                self.ended = True
                return
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def _run_body(request: Mapping[str, Any], calls: Calls | None) -> dict[str, Any]:
    body = {**request, "stream": True}
    if isinstance(calls, Mapping):
        body["calls"] = [describe(name, function) for name, function in calls.items()]
    elif calls is not None:
        body["calls"] = calls
    return body


def _asked(event: Mapping[str, Any], functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """Returns the calls of an event that functions answer."""
    return [call for call in event.get("calls", ()) if functions and call.get("answer")]


def _why_refused(problem: Exception) -> str | None:
    """Returns why a call's answer was refused; None if there is nobody to tell."""
    if not isinstance(problem, ServerError):
        return f"the answer is not JSON: {problem}"
    if problem.status and problem.reason != "unknown_call":  # else the run has ended
        return f"the answer was refused: {problem.message}"
    return None


def _failure(error: Exception, http: httpx2.Client | httpx2.AsyncClient) -> ServerError | None:
    """Returns the error of a request with a closed client; raises a RuntimeError that has another cause."""
    if not isinstance(error, RuntimeError):
        return None
    if not http.is_closed:
        raise error
    return ServerError("the client has been closed: make another one")


def _quote(name: str) -> str:
    return quote(name, safe="")


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
