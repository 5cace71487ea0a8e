"""The suite `fairness` reports all figures."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from lab import ROOT
from lab.attacks.modules import straight_module
from lab.inputs.vocabularies import synthetic
from lab.report import Report
from lab.suites import fairness
from pyaici.toolchain import build_controller
from tests.lab.suites.figures import Figures, forms
from tests.simulation import World


@pytest.mark.thorough  # a measurement: test_masks.py runs a suite whole
@forms
def test_fairness_reports_all_figures(form: str, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone in a simulated daemon, in which no worker can die; or among real processes."""
    if form == "stand-ins":
        monkeypatch.setattr(fairness, "vocabulary", lambda size: synthetic(512))
        monkeypatch.setattr(fairness, "offender", lambda *words: nullcontext())
        monkeypatch.setattr(fairness, "_busy_machine", lambda count: nullcontext())
        monkeypatch.setattr(fairness, "straight_module", lambda: straight_module(100))
        monkeypatch.setattr(fairness, "_recovery", lambda report, steady: None)
    with World(None, fairness) if form == "stand-ins" else nullcontext():
        found = figures("fairness")
    beside = ("all", "batch_busy", "batch_runaway", "busy", "init", "runaway", "straight_line")
    names = {f"{name}_p99_ms" for name in ("alone", *beside, "victim")}
    names |= {"first_mask_alone_ms", "first_mask_beside_abuse_ms", "first_mask_errors"}
    names |= {"false_kills", "false_lates", "alone_steps_per_s", "two_clients_ratio"}
    names |= {"recovery_ms"} if form == "real" else set()
    assert set(found) == {f"fairness.{name}" for name in names}
    assert found["fairness.victim_p99_ms"] == max(found[f"fairness.{name}_p99_ms"] for name in beside) > 0
    # of 80 calls; time that the hypervisor takes from a core counts as the guest's own
    assert found["fairness.false_kills"] <= 2
    assert found["fairness.first_mask_beside_abuse_ms"] > 0 and found["fairness.first_mask_errors"] == 0
    assert found["fairness.alone_steps_per_s"] > 0 and found["fairness.two_clients_ratio"] > 0


def test_death_of_a_worker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "vocabulary", lambda size: synthetic(512))
    report = Report("fairness", quick=True)
    steady = build_controller(ROOT / "lab" / "guests" / "steady.c", tmp_path / "steady.wasm").path
    fairness._recovery(report, steady)
    (figure,) = report.figures
    assert figure.name == "fairness.recovery_ms" and figure.value > 0
