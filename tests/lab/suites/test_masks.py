"""The suite `masks` runs in its short form and reports all figures."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import CONSTRAINTS, Figures


def test_masks_reports_all_figures(figures: Figures) -> None:
    """The suite itself compares every mask with llguidance's."""
    found = figures("masks")
    names = [f"{name}.{way}_us" for name in CONSTRAINTS for way in ("cold", "warm")]
    names += [f"{name}.llguidance_{way}_us" for name in CONSTRAINTS for way in ("cold", "warm")]
    names += ["cold_ratio", "warm_ratio", "worst_ratio"]
    assert set(found) == {f"masks.32k.{name}" for name in names}
    for name in CONSTRAINTS:
        assert found[f"masks.32k.{name}.warm_us"] > 0
    ours = sum(found[f"masks.32k.{name}.cold_us"] for name in CONSTRAINTS)
    theirs = sum(found[f"masks.32k.{name}.llguidance_cold_us"] for name in CONSTRAINTS)
    assert found["masks.32k.cold_ratio"] == pytest.approx(ours / theirs, rel=0.01)
