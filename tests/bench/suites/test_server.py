"""The suite `server` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_server_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("server", tmp_path, capsys)
    each = ("tokens_per_s", "bare_tokens_per_s", "rate_ratio", "first_token_ms", "first_token_p99_ms")
    each += ("bare_first_token_ms", "first_token_added_ms")
    assert set(found) == {
        f"server.b{n}.{kind}.{what}" for n in (1, 8) for kind in ("free", "regex") for what in each
    }
    assert all(found[name] > 0 for name in found if "added" not in name)
