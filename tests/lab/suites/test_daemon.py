"""The suite `daemon` runs in its short form."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import Figures

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


@pytest.mark.slow
def test_daemon_reports_starts_of_all_processes(figures: Figures) -> None:
    found = figures("daemon")
    assert {"start.daemon_ms", "start.further_worker_cpu_ms", "start.compiler_cpu_ms"} <= set(found)
    assert min(found["start.daemon_ms"], found["start.owner_ms"], found["start.replacement_ms"]) > 0
