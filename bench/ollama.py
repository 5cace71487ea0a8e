"""A server that speaks Ollama's API for generating text, in front of the chat of an `aici serve`.

Ollama itself is no Python package. What is measured with this is what a prompt can do, with the same model on
both sides; it says nothing of Ollama's speed.
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
    """Answers `POST /api/generate`, on this machine alone. `backend`: address of the `aici serve`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = ""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, OllamaServer)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        options = asked["options"]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": asked["prompt"]}],
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
        """Nothing: the figures come last."""


@contextmanager
def ollama() -> Iterator[OllamaServer]:
    """A running one, until the block ends."""
    with OllamaServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
