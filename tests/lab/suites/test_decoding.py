"""The suite `decoding` reports all figures."""

from __future__ import annotations

import pytest

from lab.suites import decoding
from tests.lab.suites.figures import Figures, forms

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


@forms
def test_decoding_reports_all_figures(
    form: str, figures: Figures, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "stand-ins":
        monkeypatch.setattr(decoding, "default_gguf_path", lambda: request.getfixturevalue("tiny_gguf"))
    found = figures("decoding")
    found.pop("decoding.free_requests_us")  # a difference, of either sign
    names = {"logits_us.float32", "logits_us.top64", "free_step_us", "mix_ratio", "mixed_step_ms"}
    names |= {"lookup_ratio", "plain_passes", "lookup_passes"}
    assert set(found) == {f"decoding.{name}" for name in names}
    assert all(value > 0 for value in found.values())
