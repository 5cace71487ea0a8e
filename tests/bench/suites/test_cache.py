"""The suite `cache` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_cache_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("cache", tmp_path, capsys)
    names = {
        f"{engine}.{what}" for engine in ("llama", "hf") for what in ("first_mb", "idle_mb", "idle_ratio")
    }
    assert set(found) == names | {"fork.llama_us", "fork.llama_p99_us"}
    assert min(found.values()) > 0
