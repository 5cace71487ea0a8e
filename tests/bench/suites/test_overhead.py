"""The suite `overhead` runs in its short form and reports all figures."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_overhead_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("overhead", tmp_path, capsys)
    for engine, batch in itertools.product(("hf", "llama"), (1, 8)):
        name = f"overhead.{engine}.b{batch}"
        assert found[f"{name}_low_ms"] <= found[f"{name}_ms"] <= found[f"{name}_high_ms"]
        assert found[f"{name}_free_step_ms"] > 0
    assert found["llama.tokens_s_ratio_to_hf.b1"] > 0 and found["llama.tokens_s_ratio_to_hf.b8"] > 0
