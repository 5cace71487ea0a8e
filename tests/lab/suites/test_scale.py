"""The suite `scale` runs in its short form."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import Figures

#: a measurement: tests/pyaici/server/test_replicas.py has the replicas
pytestmark = pytest.mark.thorough


@pytest.mark.slow
def test_scale_reports_all_figures(figures: Figures) -> None:
    found = figures("scale")
    pulled = found.keys() & {"scale.pull_s"}
    times = {"scale.upload_visible_ms", "scale.tag_visible_ms", "scale.start_s", "scale.restart_s"}
    assert found.keys() == {"scale.requests_ratio.2", *times, *pulled}
    assert min(found.values()) > 0
