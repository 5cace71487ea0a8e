"""The suite `cache` reports all figures."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from lab.servers.server_process import ServerProcess
from lab.suites import cache
from tests.lab.suites.figures import Figures, forms


@forms
def test_cache_reports_all_figures(
    form: str,
    tmp_path: Path,
    figures: Figures,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if form == "stand-ins":
        server = ServerProcess(request.getfixturevalue("tiny_server"), os.getpid(), tmp_path / "log")
        monkeypatch.setattr(cache, "server_process", lambda *options: nullcontext(server))
        monkeypatch.setattr(cache, "default_gguf_path", lambda: request.getfixturevalue("tiny_gguf"))
    found = figures("cache")
    names = {
        f"{engine}.{what}" for engine in ("llama", "hf") for what in ("first_mb", "idle_mb", "idle_ratio")
    }
    assert set(found) == names | {"fork.llama_us", "fork.llama_p99_us"}
    assert min(found.values()) > 0
