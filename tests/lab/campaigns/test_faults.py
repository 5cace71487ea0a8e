"""The campaign `faults` in a short form: faults lose only what they hit."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from lab.campaigns import faults
from lab.campaigns.campaign import Campaign
from lab.campaigns.hits import Hits
from lab.report import Report


def test_short_run_has_no_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_FIRST", {"kill_supervisor": 1, "kill_worker": 2, "stop_worker": 1})
    monkeypatch.setattr(faults, "_THEN", {"kill_client": 1, "stop_client": 1, "kill_builder": 1})
    report = Report("faults")
    campaign = Campaign(report, 4, 10, None, tmp_path)
    with subprocess.Popen(["true"]):  # another test's process that has ended: not what the campaign left
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


def test_only_a_fault_before_it_explains_a_loss() -> None:
    hits, now = Hits(), time.monotonic()
    loss = {"what": "step", "pid": 7, "start": now - 1, "end": now, "code": "worker_died"}
    loss["message"] = "worker 0 (pid 7) has ended; its sequences are lost"
    assert not hits.explain(loss)
    hits.add(7, "worker", now + 0.5)
    assert not hits.explain(loss), "the loss came first"
    hits.add(7, "worker", now - 0.25)
    assert hits.explain(loss)
    assert not hits.explain({**loss, "code": "timeout"}), "only hung processes cause time-outs"
    assert not hits.explain({**loss, "code": "runtime"})
    assert not hits.explain({**loss, "code": "supervisor_died"})
    hits.down(now - 0.1, now + 1)
    assert hits.explain({**loss, "code": "supervisor_died"})
    ((delay, found),) = hits.delays([loss, {**loss, "pid": 8}])["worker"]
    assert delay == pytest.approx(250) and found["pid"] == 8
