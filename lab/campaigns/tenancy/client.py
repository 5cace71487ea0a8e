"""A user of the server, with a separate address on the loopback interface."""

from __future__ import annotations

import http.client
import json
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: time-out for the next byte of an answer
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Client:
    """Sends requests, each on a new connection."""

    port: int
    token: str
    #: 127.0.0.N: the server counts connections by address
    address: str

    def connect(self, seconds: float = TIMEOUT_SECONDS) -> socket.socket:
        """Opens a bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), seconds, source_address=(self.address, 0))

    def head(self, path: str, length: int, method: str = "POST") -> bytes:
        """Returns the head of a request, for a bare connection."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        lines += [f"Authorization: Bearer {self.token}"] if self.token else []
        return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Sends a request; returns status and body of the answer. Sends a body of bytes unchanged."""
        connection = self._send(method, path, body)
        try:
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def events(self, path: str, body: Any) -> Iterator[dict[str, Any]]:
        """Yields the events of a streamed answer as they arrive, with [DONE] as ``{}``.

        Raises RefusedError if the status is not 200.
        """
        connection = self._send("POST", path, body)
        try:
            response = connection.getresponse()
            if response.status != 200:
                raise RefusedError(f"{response.status} {code_of(response.read())}")
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield {} if line.startswith(b"data: [DONE]") else json.loads(line[6:])
        finally:
            connection.close()

    def _send(self, method: str, path: str, body: Any) -> http.client.HTTPConnection:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT_SECONDS, source_address=(self.address, 0)
        )
        try:
            connection.request(method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may answer before it has received the whole body
        except BaseException:
            connection.close()
            raise
        return connection


class RefusedError(Exception):
    """The server answered with an error."""


def code_of(body: bytes) -> str:
    """Returns the code of the error in an answer."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or error["type"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "no_code"


def outcomes(status: int, body: bytes) -> Counter[str]:
    """Returns the outcomes of a request: how each fork of a run ended, or the status and the error's code."""
    if status >= 400:
        return Counter([f"{status}_{code_of(body)}"])
    try:
        forks = json.loads(body)["forks"]
        return Counter((fork["error"] or {}).get("code") or fork["finish_reason"] for fork in forks)
    except (ValueError, KeyError, TypeError):
        return Counter([str(status)])
