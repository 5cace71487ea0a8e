"""The soak in its short form."""

from __future__ import annotations

from bench.campaigns import soak
from bench.report import Report


def test_short() -> None:
    report = Report("soak")
    soak.run(report, 8, 1)
    found = {figure.name: figure.value for figure in report.figures}
    assert found["soak.mixed_answers"] == found["soak.failures"] == found["soak.left_behind"] == 0
    assert found["soak.answers"] > 1000 and found["soak.requests"] > 10
    for name in ("supervisor", "builder", "worker0", "worker1", "client0", "client1"):
        assert found[f"soak.{name}.rss_first"] > 10
