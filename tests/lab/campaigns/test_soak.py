"""The campaign `soak` in a short form."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaigns import soak
from lab.campaigns.campaign import Campaign
from lab.report import Report


@pytest.mark.thorough  # test_load.py plays the same load, and finds each kind of wrong answer
def test_short_run_has_no_failures(tmp_path: Path) -> None:
    report = Report("soak")
    campaign = Campaign(report, 1, None, 1.5, tmp_path)
    soak.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    assert found["soak.mixed_answers"] == found["soak.left_behind"] == 0
    assert found["soak.answers"] > 300 and found["soak.requests"] > 10
    for name in ("supervisor", "builder", "worker0", "worker1", "client0", "client1"):
        assert found[f"soak.{name}.rss_first"] > 10
