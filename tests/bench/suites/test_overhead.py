"""The suite `overhead` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_overhead_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("overhead", tmp_path, capsys)
    for batch in (1, 8):
        name = f"overhead.hf.b{batch}"
        assert found[f"{name}_low_ms"] <= found[f"{name}_ms"] <= found[f"{name}_high_ms"]
        assert found[f"{name}_free_step_ms"] > 0
