"""The client of Ollama's API, with a stand-in server whose answers the tests choose.

Ollama is not available as a package that tests could install. The stand-in follows its documented API.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pyaici.server.apis.cpc.ollama import OllamaCompletion
from pyaici.server.apis.cpc.requests import CpcRequest
from pyaici.server.http.errors import ApiError
from pyaici.server.settings import ServerSettings


class StandIn(ThreadingHTTPServer):
    """Answers `POST /api/generate` with these pieces."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pieces: list[str] = []
        self.status = 200
        #: error to send instead of the pieces
        self.error = ""
        self.request_body: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[StandIn]:
        """Serves in a thread until the block ends."""
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, StandIn)
        server.request_body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/api/generate"
        self.send_response(server.status)
        self.send_header("content-type", "application/x-ndjson")
        self.end_headers()
        if server.status != 200:
            self.wfile.write(json.dumps({"error": server.error or "model 'x' not found"}).encode())
            return
        if server.error:
            self.wfile.write(json.dumps({"error": server.error}).encode() + b"\n")
            return
        for piece in server.pieces:
            self.wfile.write(json.dumps({"response": piece, "done": False}).encode() + b"\n")
        self.wfile.write(json.dumps({"response": "", "done": True}).encode() + b"\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def ollama() -> Iterator[StandIn]:
    with StandIn.running() as server:
        yield server


def _complete(ollama: StandIn, **fields: Any) -> tuple[list[str], OllamaCompletion]:
    request = CpcRequest(**{"context": "x = 1\n", "prefix": "pri", **fields})
    completion = OllamaCompletion(request, ollama.url + "/", "a-model", 5)

    async def read() -> list[str]:
        return [chunk async for chunk in completion.chunks()]

    return asyncio.run(read()), completion


@pytest.mark.parametrize(
    ("pieces", "text", "adhered"),
    [
        (["print(", "x", ")"], "print(x)", True),
        (["p", "r", "int"], "print", True),
        ([" \n", "print(x)\nmore"], "print(x)", True),
        (["nt(x)"], "print(x)", False),
        (["Sure: print(x)"], "priSure: print(x)", False),
        (["pr"], "pri", False),
        ([], "pri", False),
        (["print(", "x)\n", "y"], "print(x)", True),
        (["pri"], "pri", True),
    ],
)
def test_suggestion_begins_with_the_prefix(
    ollama: StandIn, pieces: list[str], text: str, adhered: bool
) -> None:
    ollama.pieces = pieces
    chunks, completion = _complete(ollama)
    assert "".join(chunks) == text
    assert completion.adhered is adhered
    assert completion.nbytes == len(text.encode())


def test_request_to_ollama(ollama: StandIn) -> None:
    ollama.pieces = ["print"]
    _complete(ollama, temperature=0.3, top_p=0.8, top_k=7, max_new_tokens=10, lang="python", prefix="pri")
    body = ollama.request_body
    assert body["model"] == "a-model" and body["stream"] is True
    options = body["options"]
    assert (options["temperature"], options["top_p"], options["top_k"], options["seed"]) == (0.3, 0.8, 7, 5)
    assert options["num_predict"] == 10 + 64 and "```" in options["stop"] and "\n\n" in options["stop"]
    assert (
        "x = 1\n" in body["prompt"]
        and "<PREFIX>pri</PREFIX>" in body["prompt"]
        and "python" in body["prompt"]
    )
    plain = body["prompt"]
    _complete(ollama, code_only=False, lang="python")
    assert ollama.request_body["prompt"] != plain


def test_prefixes_with_blanks_and_line_ends(ollama: StandIn) -> None:
    ollama.pieces = ["  a\n  b", "c\nd"]
    chunks, completion = _complete(ollama, prefix="  a\n  b")
    assert "".join(chunks) == "  a\n  bc" and completion.adhered is True


def test_errors_say_what_to_do(ollama: StandIn) -> None:
    ollama.status = 404
    with pytest.raises(ApiError, match="model 'x' not found") as refused:
        _complete(ollama)
    assert refused.value.status == 502 and "ollama pull" in refused.value.message
    ollama.status = 200
    url = ollama.url
    completion = OllamaCompletion(
        CpcRequest(prefix="a"), url.replace("127.0.0.1", "127.0.0.1:1/x"), "m", None
    )
    with pytest.raises(ApiError, match="OLLAMA_URL") as refused:
        asyncio.run(_drain(completion))
    assert "127.0.0.1" not in refused.value.message


def test_errors_do_not_reveal_addresses(ollama: StandIn) -> None:
    """Ollama's own messages contain the address of the server behind it."""
    ollama.error = f"do completion request: Post {ollama.url}/completion: EOF"
    for status in (500, 200):
        ollama.status = status
        with pytest.raises(ApiError, match="Ollama cannot complete with 'a-model'") as failed:
            _complete(ollama)
        assert failed.value.status == 502 and "127.0.0.1" not in failed.value.message


def test_ollama_is_available_only_if_configured() -> None:
    assert ServerSettings().ollama is None
    assert ServerSettings(cpc_backend="ollama").ollama == "http://localhost:11434"
    for backend in ("pcas", "ollama"):
        assert ServerSettings(cpc_backend=backend, ollama_url="http://gpu-3:1").ollama == "http://gpu-3:1"


async def _drain(completion: OllamaCompletion) -> None:
    async for _ in completion.chunks():
        pass
