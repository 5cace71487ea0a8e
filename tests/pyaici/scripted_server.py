"""An HTTP server with scripted answers, for behaviour that no real server shows on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: status and body, one for each request in turn
Answers = list[tuple[int, bytes]]


@contextmanager
def answering(answers: Answers) -> Iterator[tuple[str, list[Any]]]:
    """Runs a server; yields its address and its requests so far: method, path, body (parsed JSON)."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            is_json = self.headers.get("content-type") == "application/json"
            seen.append((self.command, self.path, json.loads(data) if is_json else data))
            status, body = answers.pop(0)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def stream(*events: Any) -> bytes:
    """Returns server-sent events in the form of `aici serve`."""
    lines = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"data: {line}\n\n: ping\n\n" for line in lines).encode()


def refusal(message: str, code: str | None = None, log: str = "") -> bytes:
    """Returns the body of an error."""
    return json.dumps({"error": {"message": message, "code": code, "param": None, "log": log}}).encode()
