"""The suite `step` runs in its short form and reports all figures."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import Figures

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


def test_step_reports_all_figures(figures: Figures) -> None:
    found = figures("step")
    for count in (2, 4):
        critical, begin = found[f"step.critical_ms.{count}"], found[f"step.begin_ms.{count}"]
        assert 0 < begin < critical <= found[f"step.critical_p99_ms.{count}"]
        assert found[f"step.wait_ms.{count}"] > 0
    assert 0 < found["step.critical_regex_ms.40"] <= found["step.critical_regex_p99_ms.40"]
    assert 0 < found["step.overlapped_ms.40"] <= found["step.overlapped_p99_ms.40"]
    assert 0 < found["step.idle_cpu_pct"] < 50
