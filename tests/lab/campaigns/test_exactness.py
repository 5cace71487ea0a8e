"""The campaign `exactness` in a short form; lab/exactness/ has the cases of each engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaigns import __main__ as command
from lab.campaigns import exactness
from lab.campaigns.campaign import Campaign
from lab.campaigns.exactness import _Found
from lab.report import Report


def figures(campaign: Campaign) -> dict[str, float]:
    return {figure.name: figure.value for figure in campaign.report.figures}


@pytest.mark.thorough  # tests/lab/exactness/test_exactness.py has cases of all engines
def test_short_run_has_no_failures(tmp_path: Path) -> None:
    """Two processes share the cases of one engine."""
    campaign = Campaign(Report("exactness"), 1, 2, None, tmp_path, engines=("substring",), jobs=2)
    exactness.run(campaign)
    found = figures(campaign)
    assert campaign.failures == 0 == found["exactness.substring.failures"]
    assert found["exactness.substring.cases"] == 2 and found["exactness.substring.masks"] > 2


def test_failed_cases_are_written_with_their_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [_Found(0, 0, "start ::= 'a';", 3), _Found(0, 1, "start ::= 'b';", 2, flaws=["token b'b': no"])]
    monkeypatch.setattr(exactness, "_results", lambda _campaign, _kind: iter(results))
    campaign = Campaign(Report("exactness"), 7, 2, None, tmp_path, engines=("kbnf", "gbnf"))
    exactness.run(campaign)
    assert campaign.failures == 2 and figures(campaign)["exactness.gbnf.failures"] == 1
    assert (tmp_path / "exactness-kbnf-7-1.source").read_text() == "start ::= 'b';"
    failure = (tmp_path / "exactness-kbnf-7-1.failure").read_text()
    assert "token b'b': no" in failure
    assert "again: ./scripts/campaign.sh exactness --engine kbnf --seed 7 --only 1" in failure


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["exactness", "--engine", "xml"], "there is no engine xml: choose from kbnf, gbnf"),
        (["exactness", "--jobs", "0"], "--jobs must be at least 1"),
        (["hostile", "--jobs", "2"], "for the campaign exactness, not for hostile"),
    ],
)
def test_wrong_options_are_refused(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(argv)
    assert message in capsys.readouterr().err
