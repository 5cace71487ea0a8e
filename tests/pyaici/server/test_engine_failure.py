"""A server whose engine cannot go on."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.processes import family, left_behind
from tests.pyaici.server.serving import Serving


def test_an_engine_that_fails_ends_the_server(tmp_path: Path) -> None:
    with Serving(tmp_path / "log", program=("-m", "tests.pyaici.server.failing")) as server:
        members = family(server.process.pid)
        with server.client() as client:
            for _ in range(3):
                run = client.post("/v1/run", json={"prompt": [1, 2, 3], "stream": False})
                assert run.json()["forks"][0]["finish_reason"] == "error"
            # whoever comes now hears it, if there is still somebody to say it
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
        assert server.process.wait(60) == 1
        assert left_behind(members) == []
    log = server.text()
    assert "CRITICAL aicirt.server: the engine has failed: the server must be started again" in log
    assert "aici serve: error: the engine has failed, which ended the server; its log says why" in log
