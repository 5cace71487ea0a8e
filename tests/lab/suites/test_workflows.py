"""The suite `workflows` reports all figures."""

from __future__ import annotations

import pytest

from lab.suites import workflows
from tests.lab.suites.figures import Figures


@pytest.mark.slow
def test_workflows_report_all_figures(figures: Figures) -> None:
    found = figures("workflows")
    each = {
        f"workflows.{name}.t0.u1.{what}"
        for name in workflows.WORKFLOWS
        for what in ("controller_s", "client_s", "ratio")
    }
    whole = {"workflows.latency_ratio", "workflows.overlap_gain", "call.roundtrip_us"}
    assert set(found) == each | whole
    assert min(found.values()) > 0
