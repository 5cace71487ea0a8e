"""The suite `cpc` reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.servers import keystrokes
from lab.servers.server_process import serving
from lab.servers.tiny_model import make_tiny_model
from lab.suites import cpc
from tests.lab.suites.figures import Figures, forms

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


@forms
def test_cpc_reports_all_figures(
    form: str,
    tmp_path: Path,
    figures: Figures,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if form == "stand-ins":
        model = make_tiny_model(tmp_path / "model", sharp=10.0)
        monkeypatch.setattr(cpc, "default_model_path", lambda: model)
        served = f"--model={request.getfixturevalue('tiny_gguf')}"
        monkeypatch.setattr(keystrokes, "serving", lambda *options: serving(served, *options))
    found = figures("cpc")
    each = ("histories", "evals", "trials", "trials_untold", "tv_pcas", "tv_heal", "chi2_p")
    names = {f"{name}.{what}" for name in ("bridge", "munich") for what in each}
    names |= {"chi2_p", "tv_pcas", "tv_pcas_max", "tv_heal", "evals", "evals_ratio", "evals_per_key"}
    names |= {"cold_ms", "warm_ms", "warm_mean_ms", "http_cold_ms", "http_warm_ms"}
    names |= {"adherence_exact", "adherence_asked"}
    assert set(found) == {f"cpc.{name}" for name in names}
    assert found["cpc.chi2_p"] > 1e-4 and 0 < found["cpc.tv_pcas"] <= found["cpc.tv_pcas_max"] <= 1
    assert 0 < found["cpc.evals_ratio"] < 1
    assert found["cpc.adherence_exact"] == 1 > found["cpc.adherence_asked"]
