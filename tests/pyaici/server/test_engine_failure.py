"""A server whose engine fails permanently."""

from __future__ import annotations

from pathlib import Path

import httpx2

from lab.system.processes import family, left_behind
from lab.system.waiting import PATIENCE
from tests.pyaici.server.serving import Serving


def test_failing_engine_stops_the_server(tmp_path: Path) -> None:
    with Serving(tmp_path / "log", program=("tests.pyaici.server.failing",)) as server:
        members = family(server.process.pid)
        with server.client() as client:
            for _ in range(3):
                run = client.post("/v1/run", json={"prompt": [1, 2, 3], "stream": False})
                assert run.json()["forks"][0]["finish_reason"] == "error"
            # later requests get the error, unless the server has stopped already
            try:
                for path, body in (("/ready", None), ("/v1/run", {"prompt": [1]}), ("/cpc", {"prefix": "a"})):
                    late = client.get(path) if body is None else client.post(path, json=body)
                    assert late.status_code == 503, late.text
                    if body is None:
                        assert late.json()["engine"] is False
                    else:
                        assert "the engine has failed" in late.json()["error"]["message"]
            except httpx2.TransportError:
                pass
        assert server.process.wait(PATIENCE) == 1
        assert left_behind(members) == []
    log = server.text()
    assert "CRITICAL aicirt.server: the engine has failed: restart the server" in log
    assert "aici serve: error: the server has stopped because the engine failed: see the log" in log
