"""Campaigns: numbers of cases, files of failed cases, output of the command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lab.campaigns import __main__ as command
from lab.campaigns import soak
from lab.campaigns.campaign import Campaign
from lab.report import Report


def campaign(folder: Path, **fields: object) -> Campaign:
    given = {"seed": 1, "count": None, "seconds": None, "folder": folder, **fields}
    return Campaign(Report("demo"), **given)  # type: ignore[arg-type]


def test_cases_end_after_count_or_seconds(tmp_path: Path) -> None:
    assert list(campaign(tmp_path, count=3).cases()) == [0, 1, 2]
    assert list(campaign(tmp_path).cases(usual=4)) == [0, 1, 2, 3]
    assert list(campaign(tmp_path, count=2).cases(usual=4)) == [0, 1]
    assert list(campaign(tmp_path, only=7, count=2).cases()) == [7]
    assert list(campaign(tmp_path, seconds=0).cases()) == []
    timed = campaign(tmp_path, seconds=0.1)
    for _ in timed.cases():
        time.sleep(0.01)
    assert timed.over and timed.elapsed >= 0.1


def test_random_draws_depend_on_seed_and_case_alone(tmp_path: Path) -> None:
    draws = {
        (seed, case): campaign(tmp_path, seed=seed).random(case).random()
        for seed in (1, 2)
        for case in (0, 1)
    }
    assert len(set(draws.values())) == 4
    assert campaign(tmp_path, seed=2).random(1).random() == draws[2, 1]
    assert campaign(tmp_path, seed=2).random(1, "more").random() != draws[2, 1]


def test_failed_cases_are_written_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = campaign(tmp_path / "new")
    run.failed(5, "it broke", b"data", ".wasm")
    run.failed(5, "it broke again")
    description = tmp_path / "new" / "demo-1-5.failure"
    assert (tmp_path / "new" / "demo-1-5.wasm").read_bytes() == b"data"
    assert "it broke\n" in description.read_text() and "it broke again\n" in description.read_text()
    assert "again: ./scripts/campaign.sh demo --seed 1 --only 5" in description.read_text()
    assert str(description) in capsys.readouterr().err and run.failures == 2


def test_outcomes_are_counted_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = campaign(tmp_path, count=9)
    run.ended("good", 3)
    run.ended("bad")
    assert run.done == 4 and run.outcomes == {"good": 3, "bad": 1}
    assert "3 of 9 cases" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_command_writes_figures_and_exits_with_1_on_failure(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(campaign: Campaign) -> None:
        assert (campaign.seed, campaign.count, campaign.seconds) == (3, 20, None)
        campaign.figure("cases", 20, "cases")
        if fails:
            campaign.failed(1, "so it is")

    monkeypatch.setattr(soak, "run", run)
    assert command.main(["soak", "--seed", "3", "--count", "20", "--out", str(tmp_path)]) == int(fails)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["soak.cases 20 cases", f"soak.failures {int(fails)} cases"]
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["command"] == "./scripts/campaign.sh soak --seed 3 --count 20"
    assert found["figures"][0]["name"] == "soak.cases"


def test_every_campaign_has_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    known = command.campaigns()
    assert {"modules", "results", "hostile", "soak"} <= set(known)
    assert all(summary.endswith(".") for summary in known.values())
    assert command.main([]) == 0
    assert "hostile" in capsys.readouterr().out
