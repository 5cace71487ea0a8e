"""Some cases of the campaign `scarcity`, where this user has the permissions for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaigns import scarcity
from lab.campaigns.campaign import Campaign
from lab.campaigns.scarce import CASES
from lab.report import Report
from tests.thorough import also


@pytest.mark.parametrize(
    "case",
    [
        "read_only",
        "no_landlock",
        *also("few_descriptors", "disk_full", "no_pagemap_scan", "no_processes", "clock_jumps"),
    ],
)
def test_case_has_no_failures(case: str, tmp_path: Path) -> None:
    if scarcity.prefix_of(case) is None:
        pytest.skip(f"this user cannot run cases that need {CASES[case].needs!r}")
    report = Report("scarcity")
    campaign = Campaign(report, 1, None, None, tmp_path, list(CASES).index(case))
    scarcity.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    assert campaign.outcomes == {case: 1}


def test_failing_case_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the case fails in an empty environment."""
    monkeypatch.setattr(scarcity, "prefix_of", lambda _: ["env", "-i", "PATH=/nowhere"])
    campaign = Campaign(Report("scarcity"), 1, None, None, tmp_path, list(CASES).index("disk_full"))
    scarcity.run(campaign)
    assert campaign.failures == 1
