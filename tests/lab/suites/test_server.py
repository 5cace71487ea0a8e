"""The suite `server` reports all figures."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from lab.suites import server
from tests.lab.suites.figures import Figures, forms


@forms
def test_server_reports_all_figures(
    form: str,
    figures: Figures,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if form == "stand-ins":
        address = nullcontext(request.getfixturevalue("tiny_server"))
        monkeypatch.setattr(server, "serving", lambda *options: address)
        monkeypatch.setattr(server, "llama_cpp_server", lambda *options: address)
        monkeypatch.setattr(server, "default_gguf_path", lambda: request.getfixturevalue("tiny_gguf"))
        controllers = {"json_schema": request.getfixturevalue("any_token")}
        monkeypatch.setattr(server, "bundled_controllers", lambda: controllers)
    found = figures("server")
    each = {"ratio_to_bare", "ratio_to_llama_cpp"}
    for who in ("bare", "server", "llama_cpp"):
        each |= {f"{who}_tokens_per_s", f"{who}_first_token_ms", f"{who}_first_token_p99_ms"}
    names = {f"server.b{n}.{kind}.{what}" for n in (1, 8) for kind in ("free", "schema") for what in each}
    names |= {f"server.b{n}.default_threads.ratio_to_llama_cpp" for n in (1, 8)}
    assert set(found) == names
    assert min(found.values()) > 0
