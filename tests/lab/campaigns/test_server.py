"""The campaign `server` in a short form: only killed processes cause errors, and everything is given back."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.campaigns import server
from lab.campaigns.campaign import Campaign
from lab.campaigns.tenancy.client import Client
from lab.report import Report
from lab.servers.tiny_model import make_tiny_model


@pytest.mark.thorough  # test_faults.py kills processes, and test_worker_death.py a server's
def test_short_run_has_no_failures(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    report = Report("server")
    campaign = Campaign(report, 1, None, 1.5, tmp_path)
    size = server.Size(streams=4, hogs=1, idle=20, silent=1, long=200, options=(f"--model={model}",))
    server.run(campaign, size)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    for name in ("innocent_errors", "sequences_left", "left_behind", "tracebacks"):
        assert found[f"server.{name}"] == 0, name
    assert found["server.gap_p99_ratio"] > 0 and found["server.runtime_death_s"] > 0
    assert found["server.warnings"] >= 1, "the log has the deaths"
    assert campaign.outcomes["requests"] > 10


GOOD = 'data: {"choices": [{"text": "ab", "finish_reason": null}]}'
END = 'data: {"choices": [{"text": "", "finish_reason": "length"}]}'


@contextmanager
def answering(*lines: str) -> Iterator[Client]:
    """Yields a client of a server that always answers with these lines."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write("\n\n".join([*lines, ""]).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield Client(running.server_address[1], "", "127.0.0.2")
        running.shutdown()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([GOOD, END, "data: [DONE]"], None),
        ([GOOD, END], "broken"),
        ([GOOD, "data: [DONE]"], "wrong"),
        ([GOOD.replace("ab", "7"), END, "data: [DONE]"], "wrong"),
        ([GOOD, 'data: {"error": {"code": "timeout", "message": "m"}}', "data: [DONE]"], "timeout"),
    ],
)
def test_errors_and_wrong_answers_are_found(lines: list[str], code: str | None) -> None:
    with answering(*lines) as client:
        error = server.Reader(client, lambda _: {"prompt": "x", "regex": "[a-z]*"}).ask()
        assert (None if error is None else error[0]) == code
