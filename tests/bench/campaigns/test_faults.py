"""Faults in a short form: each kind of them at least once, and nothing but what was hit is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.campaigns import faults
from bench.campaigns.campaign import Campaign
from bench.report import Report


def test_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_FIRST", {"kill_supervisor": 1, "kill_worker": 2, "stop_worker": 1})
    monkeypatch.setattr(faults, "_THEN", {"kill_client": 1, "stop_client": 1, "kill_builder": 1})
    report = Report("faults")
    campaign = Campaign(report, 4, 10, None, tmp_path)
    faults.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    assert (
        found["faults.all"] == 10 and found["faults.kill_supervisor"] > 0 and found["faults.kill_worker"] > 0
    )
    assert (
        found["faults.mixed_answers"] == found["faults.lost_beyond_hit"] == found["faults.left_behind"] == 0
    )
    assert found["faults.lost_sequences"] > 0 and found["faults.answers"] > 10 * 2 * faults._ANSWERS


def test_what_was_not_hit_may_not_be_lost(tmp_path: Path) -> None:
    """A worker dies of which the campaign knows nothing, and a client that says so is believed."""
    field = faults.Field(tmp_path, Campaign(Report("faults"), 1, 0, None, tmp_path))
    now = time.monotonic()
    loss = {"what": "step", "pid": 7, "start": now - 1, "end": now, "code": "worker_died"}
    loss["message"] = "worker 0 (pid 7) has ended; its sequences are lost"
    assert not field._explained(loss)
    field._hit[7] = ("worker", now - 0.5)
    assert field._explained(loss)
    field._hit[7] = ("worker", now + 0.5)
    assert not field._explained(loss), "it was lost before"
    assert not field._explained({**loss, "code": "timeout"})
    assert not field._explained({**loss, "code": "supervisor_died"})
    field._down.append((now - 0.1, now + 1))
    assert field._explained({**loss, "code": "supervisor_died"})
