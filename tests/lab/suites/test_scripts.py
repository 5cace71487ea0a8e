"""The suite `scripts` reports all figures."""

from __future__ import annotations

import pytest

from lab.inputs.constraints import Constraint
from lab.inputs.vocabularies import synthetic
from lab.suites import scripts
from pyaici.bundled import find_controller
from tests.lab.suites.figures import Figures, forms

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


def argument(_language: str, constraint: Constraint) -> str:
    return constraint.argument


@forms
def test_scripts_reports_all_figures(form: str, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regular expression stands in for the interpreters, which take six seconds to compile."""
    if form == "stand-ins":
        monkeypatch.setattr(scripts, "vocabulary", lambda size: synthetic(512))
        monkeypatch.setattr(scripts, "find_controller", lambda name: find_controller("regex"))
        monkeypatch.setattr(scripts, "_argument", argument)
    found = figures("scripts")
    each = ("size_kb", "start_ms", "step_us", "fork_us", "kib", "snapshot_kib")
    names = {f"scripts.{language}.{what}" for language in ("py", "js") for what in each}
    assert set(found) == names | {"scripts.native.step_us"}
    differences = {"scripts.py.step_us", "scripts.js.step_us"}
    assert min(value for name, value in found.items() if name not in differences) > 0
    assert all(50 < found[f"scripts.{language}.size_kb"] < 5000 for language in ("py", "js"))
