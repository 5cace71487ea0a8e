"""The campaign `tenants` in a short form: only the attacker gets errors, and nothing is left behind.

The long form has all attacks at once, see test_long_forms.py; here a few of its seconds have one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaigns import tenants
from lab.campaigns.campaign import Campaign
from lab.campaigns.tenancy.attacks import ATTACKS
from lab.campaigns.tenancy.client import Client
from lab.campaigns.tenancy.victims import Victim, regex_request, script_request
from lab.report import Report


@pytest.mark.thorough  # tests/pyaici/server/test_bounds.py has the limits of users
def test_short_run_has_no_failures(tmp_path: Path) -> None:
    report = Report("tenants")
    only = [attack.name for attack in ATTACKS].index("memory")
    campaign = Campaign(report, 1, None, 1.5, tmp_path, only)
    tenants.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    for name in ("innocent_errors", "restarts", "left_behind"):
        assert found[f"tenants.{name}"] == 0, name
    for victim in ("ann", "bob"):
        assert found[f"tenants.{victim}.requests"] > 2
        assert found[f"tenants.{victim}.p99_ratio"] > 0
    assert 0 < found["tenants.loop_stall_ms"] < float("inf")
    assert found["tenants.server_mb"] > found["tenants.server_mb.http"] > 100


def test_attacks_have_unique_names() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 15


@pytest.mark.parametrize("request_of", [script_request, regex_request])
def test_wrong_answer_to_a_victim_is_an_error(request_of: object, monkeypatch: pytest.MonkeyPatch) -> None:
    text, end = "not what was asked for", {"finish_reason": "stop", "error": None}
    for events, problem in (
        ([], "ended early"),
        ([{"object": "error", "error": {"code": "slow_reader"}}], "slow_reader"),
        ([{"object": "run.end", "forks": [{"text": text, **end}]}, {}], "does not match"),
        ([{"object": "run.end", "forks": [{"text": text, **end, "finish_reason": "eos"}]}, {}], "eos"),
        ([{"object": "run.end", "forks": [{"text": text, **end}]}], "ended early"),
    ):
        monkeypatch.setattr(Client, "events", lambda *_, events=events: iter(events))
        victim = Victim("ann", Client(1, "", "127.0.0.2"), request_of)
        victim.ask()
        (error,) = victim.errors
        assert problem in error
