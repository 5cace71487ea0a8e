"""The campaign `vllm` in a short form, and its detection of wrong answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lab.campaigns import vllm
from lab.campaigns.campaign import Campaign
from lab.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]


def test_short_run_has_no_failures(tmp_path: Path) -> None:
    """The server of the campaign has a private runtime, and both must end in order."""
    report = Report("vllm")
    campaign = Campaign(report, 13, 24, None, tmp_path)  # a seed with which all kinds occur early
    vllm.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    assert found["vllm.requests"] == 24 and campaign.outcomes.keys() == vllm.KINDS.keys()
    for name in ("innocent_errors", "sequences_left", "tracebacks"):
        assert found[f"vllm.{name}"] == 0
    for kind in ("server", "engine", "aicirt", "workers"):
        assert found[f"vllm.{kind}.rss"] > 10 and found[f"vllm.{kind}.pss"] > 10


class Mixed:
    """Clients that get the answers of others."""

    texts: dict[str, str] = dict.fromkeys(vllm.PROMPTS, " one")

    def text(self, *_: Any, **__: Any) -> str:
        return '{"name": "Eve"}'

    def completion(self, *_: Any, **__: Any) -> Any:
        class Answer:
            choices = ()

        return Answer


@pytest.mark.parametrize("kind", ["free", "regex", "held", "schema", "forks", "wrong"])
def test_a_wrong_answer_is_a_problem(kind: str) -> None:
    clients: Any = Mixed()
    assert vllm.KINDS[kind].send(clients, random.Random(1)) is not None
