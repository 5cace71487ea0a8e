"""The call `http`: requests to addresses that the operator allows."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from pyaici.client.calls import CallError, plain
from pyaici.tools.allowed import AllowList, Place, allows_address
from pyaici.tools.desk import trace_parent
from pyaici.tools.settings import MAX_RESULT_BYTES

#: returns the addresses of a host. Raises OSError
Resolver = Callable[[str, int], Awaitable[list[str]]]

MAX_REQUEST_BYTES = 64 << 10
MAX_REDIRECTS = 5
_MAX_HEADER, _MAX_URL = 1024, 4096
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: headers that a request may have, those of them that stay with their origin, and headers that an answer has
_SECRET = frozenset({"authorization", "x-api-key"})
_SENT = _SECRET | {
    *("accept", "accept-language", "content-type", "if-match", "if-modified-since", "if-none-match", "range"),
}
_RETURNED = frozenset(
    {
        "cache-control",
        "content-language",
        "content-type",
        "date",
        "etag",
        "last-modified",
        "link",
        "retry-after",
    }
)

#: encodings of answers, by Python's names for them
_ENCODINGS = re.compile(
    "ascii|utf-(8|8-sig|16|16-[bl]e|32|32-[bl]e)|iso8859-.*|cp[0-9]+|koi8-.|big5.*|gb.*|euc_.*|shift_.*|iso2022_.*"
)

DESCRIPTION: dict[str, Any] = {
    "name": "http",
    "description": "Makes an HTTP request to one of the addresses that the operator allows. Returns status, "
    "headers, and json or body (text).",
    "schema": {
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "method": {"enum": ["GET", "POST"]},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "json": {},
            "body": {"type": "string"},
        },
        "required": ["url"],
        "additionalProperties": False,
    },
}


async def resolve(host: str, port: int) -> list[str]:
    """Returns the addresses of a host, in the order in which to try them. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: httpx2.URL
    headers: dict[str, str]
    body: bytes | None


class Http:
    """Answers the call `http`."""

    def __init__(self, allowed: AllowList, seconds: float, resolver: Resolver = resolve) -> None:
        self._allowed = allowed
        self._seconds = seconds
        self._resolver = resolver
        self._tls = ssl.create_default_context()

    async def call(self, _: str, arguments: Any) -> dict[str, Any]:
        """Makes a request and follows redirects (`pyaici.tools.desk.Handler`). Raises CallError."""
        request = _read_arguments(arguments)
        for _redirect in range(MAX_REDIRECTS + 1):
            place = self._check_url(request.url)
            answer = await self._send(request, place)
            if isinstance(answer, dict):
                return answer
            request = _redirected(request, answer)
        raise CallError("refused", f"the request has been redirected more than {MAX_REDIRECTS} times")

    def _check_url(self, url: httpx2.URL) -> Place:
        try:
            place = Place.of(url)
        except ValueError as error:
            raise CallError("refused", f"the URL is not allowed: {error}") from None
        if place not in self._allowed:
            where = f"{place.scheme}://{place.host}:{place.port}"
            raise CallError("refused", f"the operator does not allow this path of {where} (--http-allow)")
        return place

    async def _send(self, request: _Request, place: Place) -> dict[str, Any] | httpx2.Response:
        """Returns the answer to the call, or a response with a redirect. Raises CallError."""
        problem: Exception | None = None
        for address in await self._addresses(place):
            # the connection goes to the address that was checked, whatever the name stands for by then
            target = request.url.copy_with(host=address)
            headers = {**request.headers, "Host": request.url.netloc.decode("ascii")}
            if trace := trace_parent.get():
                headers["traceparent"] = trace
            try:
                # of its own for each request: no cookies, no credentials, no connections are kept
                async with httpx2.AsyncClient(
                    verify=self._tls, trust_env=False, follow_redirects=False, timeout=self._seconds
                ) as client:
                    async with client.stream(
                        request.method,
                        target,
                        headers=headers,
                        content=request.body,
                        extensions={"sni_hostname": place.host},
                    ) as response:
                        if response.status_code in _REDIRECTS and "location" in response.headers:
                            return response
                        return await _read_response(response)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
            except httpx2.HTTPError as error:
                raise CallError(
                    "http", f"the request to {place.host} failed: {type(error).__name__}"
                ) from None
        raise CallError("http", f"{place.host} cannot be reached: {type(problem).__name__}")

    async def _addresses(self, place: Place) -> list[str]:
        try:
            found = await self._resolver(place.host, place.port)
        except OSError as error:
            raise CallError("http", f"the name {place.host} cannot be resolved: {error.strerror}") from None
        if not found:
            raise CallError("http", f"the name {place.host} has no address")
        if not all(allows_address(place.host, address) for address in found):
            raise CallError(
                "refused",
                f"{place.host} has an address of a private network or of this machine; the operator has to "
                "allow such an address as a number",
            )
        return found


def _read_arguments(arguments: Any) -> _Request:
    """Reads the arguments of a call. Raises CallError."""
    if not isinstance(arguments, dict) or not isinstance(arguments.get("url"), str):
        raise CallError("arguments", "the arguments of http are an object with at least a url")
    if unknown := sorted(arguments.keys() - DESCRIPTION["schema"]["properties"].keys()):
        raise CallError("arguments", f"http has no argument {unknown[0]!r:.100}")
    method = arguments.get("method", "GET")
    if method not in ("GET", "POST"):
        raise CallError("arguments", "method is GET or POST")
    headers = _headers(arguments.get("headers", {}))
    body: bytes | None = None
    if "json" in arguments:
        body = json.dumps(arguments["json"], ensure_ascii=False).encode("utf-8", "replace")
        headers.setdefault("content-type", "application/json")
    elif isinstance(text := arguments.get("body"), str):
        body = text.encode("utf-8", "replace")
        headers.setdefault("content-type", "text/plain; charset=utf-8")
    elif text is not None:
        raise CallError("arguments", "body is text; use json for other values")
    if body is not None and (method == "GET" or ("json" in arguments and "body" in arguments)):
        raise CallError("arguments", "a request has json or body, and only with the method POST")
    if len(body or b"") > MAX_REQUEST_BYTES:
        raise CallError(
            "too_long", f"the body has {len(body or b'')} bytes; the limit is {MAX_REQUEST_BYTES}"
        )
    return _Request(method, _url(arguments["url"]), headers, body)


def _url(text: str) -> httpx2.URL:
    if len(text) > _MAX_URL or not text.isprintable() or " " in text or "\\" in text:
        raise CallError("arguments", f"a URL has at most {_MAX_URL} characters, and no blanks or \\")
    try:
        return httpx2.URL(text).copy_with(fragment=None)
    except (httpx2.InvalidURL, ValueError) as error:
        raise CallError("arguments", f"the URL is not valid: {error}") from None


def _headers(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise CallError("arguments", "headers are an object")
    # a fixed program name: that of the library would tell its version
    headers = {"accept-encoding": "identity", "user-agent": "aici"}
    for name, value in given.items():
        if name.lower() not in _SENT:
            raise CallError(
                "refused", f"http cannot send the header {name!r:.100}; it can: {', '.join(sorted(_SENT))}"
            )
        if not (
            isinstance(value, str) and len(value) <= _MAX_HEADER and value.isascii() and value.isprintable()
        ):
            raise CallError(
                "arguments", f"the header {name} is not a line of at most {_MAX_HEADER} characters"
            )
        headers[name.lower()] = value
    return headers


def _redirected(request: _Request, response: httpx2.Response) -> _Request:
    """Returns the request that a redirect asks for."""
    try:
        url = request.url.join(response.headers["location"])
    except (httpx2.InvalidURL, ValueError):
        raise CallError("http", "the answer redirects to an invalid URL") from None
    headers = request.headers
    if (url.scheme, url.host, url.port) != (request.url.scheme, request.url.host, request.url.port):
        headers = {name: value for name, value in headers.items() if name not in _SECRET}
    following = replace(request, url=url.copy_with(fragment=None), headers=headers)
    status = response.status_code
    if request.method == "POST" and status in (301, 302, 303):
        without = {name: value for name, value in headers.items() if name != "content-type"}
        return replace(following, method="GET", headers=without, body=None)
    return following


async def _read_response(response: httpx2.Response) -> dict[str, Any]:
    """Reads a response. Raises CallError."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise CallError("http", "the answer is compressed, although the request has not allowed that")
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_RESULT_BYTES:
            raise CallError("too_long", f"the answer has more than {MAX_RESULT_BYTES} bytes")
    found = {name: value for name, value in response.headers.items() if name.lower() in _RETURNED}
    answer: dict[str, Any] = {"status": response.status_code, "headers": found}
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {**answer, "json": plain(json.loads(body))}
        except (ValueError, RecursionError):
            pass
    return {**answer, "body": body.decode(_encoding(response.charset_encoding), "replace")}


def _encoding(name: str | None) -> str:
    """Returns an encoding of texts, by default UTF-8. Others of Python take long, or fail."""
    try:
        known = codecs.lookup(name or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return known if _ENCODINGS.fullmatch(known) else "utf-8"
