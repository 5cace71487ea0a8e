"""The suite `workflows` reports all figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.suites import workflows
from tests.lab.suites.figures import Figures, forms

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


@forms
def test_workflows_report_all_figures(
    form: str, figures: Figures, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "stand-ins":
        monkeypatch.setattr(workflows, "default_gguf_path", lambda: request.getfixturevalue("tiny_gguf"))
        short = [replace(found, turns=found.turns[:1]) for found in workflows.conversations(1)]
        monkeypatch.setattr(workflows, "conversations", lambda _: short)
        monkeypatch.setattr(workflows, "WORKFLOWS", {"react": workflows.WORKFLOWS["react"]})
    found = figures("workflows")
    names = {*workflows.WORKFLOWS, "base_0"}
    counted = ("round_trips", "tokens", "tokens_from_cache")
    each: set[str] = set()
    places = [*(f"{name}.t0.u1" for name in names), f"{next(iter(workflows.WORKFLOWS))}.t0.u2"]
    for place in (f"workflows.{place}" for place in places):
        each |= {f"{place}.ratio", f"{place}.tokens_reread"}
        each |= {f"{place}.{who}_s" for who in ("controller", "client")}
        each |= {f"{place}.{who}.{what}" for who in ("controller", "client") for what in counted}
        assert found[f"{place}.tokens_reread"] == 0
        assert found[f"{place}.controller.round_trips"] == 1 < found[f"{place}.client.round_trips"]
    whole = {"call.roundtrip_us", "branches.gain"}
    whole |= {f"workflows.{name}" for name in ("latency_ratio", "throughput_ratio", "overlap_gain")}
    for who in ("forks", "requests"):
        each |= {f"branches.{who}_s", f"branches.{who}.passes", f"branches.{who}.tokens"}
    assert found["branches.forks.tokens"] < found["branches.requests.tokens"]
    assert set(found) == each | whole
    # the time of a call is a difference, which may be negative on a busy machine
    assert min(found[name] for name in found if name.endswith(("_s", "ratio", "tokens"))) > 0
