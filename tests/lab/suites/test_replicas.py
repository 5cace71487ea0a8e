"""The suite `replicas` runs in its short form and reports all figures."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import Figures


@pytest.mark.slow
def test_replicas_reports_all_figures(figures: Figures) -> None:
    """A second replica that shares a daemon needs next to no memory for its controllers."""
    found = figures("replicas")
    kinds = ("private", "shared")
    assert set(found) == {
        f"replicas.{kind}.{what}" for kind in kinds for what in ("mib", "first_mask_ms", "next_mask_ms")
    }
    assert found["replicas.shared.mib"] < found["replicas.private.mib"] / 4
