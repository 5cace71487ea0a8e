"""The suite `overhead` reports all figures."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from lab.suites import overhead
from tests.lab.suites.figures import Figures, forms
from tests.pyaici.server.small import small_engine

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


@forms
def test_overhead_reports_all_figures(
    form: str,
    figures: Figures,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if form == "stand-ins":
        prompts = [[*text.encode()] for text in overhead._PROMPTS]  # their tokens are bytes
        monkeypatch.setattr(overhead, "_PROMPTS", prompts)
        built = SimpleNamespace(path=request.getfixturevalue("any_token"))
        monkeypatch.setattr(overhead, "build_controller", lambda source, path: built)
        monkeypatch.setattr(overhead, "_transformers", lambda: small_engine)
        monkeypatch.setattr(overhead, "default_gguf_path", lambda: request.getfixturevalue("tiny_gguf"))
    found = figures("overhead")
    each = ("ms", "low_ms", "high_ms", "beside_ms", "free_step_ms", "added_pct")
    engines = [f"{engine}.b{batch}" for engine, batch in itertools.product(("hf", "llama"), (1, 8))]
    ratios = {f"llama.tokens_s_ratio_to_hf.b{batch}" for batch in (1, 8)}
    assert set(found) == {f"overhead.{name}_{what}" for name in engines for what in each} | ratios
    for name in engines:
        low, middle, high = (found[f"overhead.{name}_{what}"] for what in ("low_ms", "ms", "high_ms"))
        assert low <= middle <= high
        assert found[f"overhead.{name}_free_step_ms"] > 0
    assert min(found[name] for name in ratios) > 0
