"""A server with Ollama's API for generating text, in front of the chat API of an `aici serve`.

Ollama itself is not a Python package. The measurement with this server shows what a prompt alone achieves,
with the same model on both sides. It says nothing about the speed of Ollama.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2


class OllamaServer(ThreadingHTTPServer):
    """Answers `POST /api/generate` on the loopback interface. `backend` is the URL of the `aici serve`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = ""

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, OllamaServer)
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        options = request["options"]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": request["prompt"]}],
            "temperature": options["temperature"],
            "top_p": options["top_p"],
            "top_k": options["top_k"],
            "max_tokens": options["num_predict"],
            "stop": options["stop"],
            "seed": options.get("seed"),
        }
        answer = httpx2.post(f"{self.server.backend}/v1/chat/completions", json=body, timeout=600)
        answer.raise_for_status()
        text = answer.json()["choices"][0]["message"]["content"]
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.end_headers()
        for line in ({"response": text, "done": False}, {"response": "", "done": True}):
            self.wfile.write(json.dumps(line).encode() + b"\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: the figures must be the last lines of the output."""


@contextmanager
def ollama() -> Iterator[OllamaServer]:
    """Runs a server until the block ends."""
    with OllamaServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
