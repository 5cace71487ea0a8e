"""The suite `step` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


def test_step_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("step", tmp_path, capsys)
    for count in (2, 4):
        critical, begin = found[f"step.critical_ms.{count}"], found[f"step.begin_ms.{count}"]
        assert 0 < begin < critical <= found[f"step.critical_p99_ms.{count}"]
        assert found[f"step.wait_ms.{count}"] > 0
    assert 0 < found["step.critical_regex_ms.40"] <= found["step.critical_regex_p99_ms.40"]
    assert 0 < found["step.overlapped_ms.40"] <= found["step.overlapped_p99_ms.40"]
    assert 0 < found["step.idle_cpu_pct"] < 50
