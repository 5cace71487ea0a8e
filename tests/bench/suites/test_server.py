"""The suite `server` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_server_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("server", tmp_path, capsys)
    each = {"ratio_to_bare", "ratio_to_llama_cpp"}
    for who in ("bare", "server", "llama_cpp"):
        each |= {f"{who}_tokens_per_s", f"{who}_first_token_ms", f"{who}_first_token_p99_ms"}
    names = {f"server.b{n}.{kind}.{what}" for n in (1, 8) for kind in ("free", "schema") for what in each}
    assert set(found) == names
    assert min(found.values()) > 0
