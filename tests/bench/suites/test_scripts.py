"""The suite `scripts` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


def test_scripts_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("scripts", tmp_path, capsys)
    assert found["scripts.native.step_us"] > 0
    for language in ("py", "js"):
        name = f"scripts.{language}"
        assert found[f"{name}.start_ms"] > 0 and found[f"{name}.fork_us"] > 0
        assert f"{name}.step_us" in found, "a difference, which may be negative"
        assert found[f"{name}.kib"] > 0 and found[f"{name}.snapshot_kib"] > 0
        assert 100 < found[f"{name}.size_kb"] < 5000
