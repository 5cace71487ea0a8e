"""The suite `fork` runs in its short form and reports all figures."""

from __future__ import annotations

import pytest

from tests.lab.suites.figures import CONSTRAINTS, Figures

#: a measurement: test_masks.py and test_size.py run a suite of this kind whole, for a tenth of the time
pytestmark = pytest.mark.thorough


def test_fork_reports_all_figures(figures: Figures) -> None:
    found = figures("fork")
    sizes = ("1mb", "4mb", "16mb")
    names = {f"fork.{kind}.{size}" for kind in ("us", "client_us") for size in sizes}
    names |= {"fork.us.next_child", "start.worker_us", "start.client_ms"}
    names |= {f"start.client_ms.{name}" for name in CONSTRAINTS}
    names |= {f"memory.guest_kib.{name}" for name in CONSTRAINTS}
    names |= {f"memory.guest_warm_kib.{name}" for name in CONSTRAINTS}
    names |= {"memory.per_sequence_kib", "memory.mask_rows_kib", "memory.page_tables_kib"}
    names |= {"start.worker_warm_us", "memory.per_warm_sequence_kib"}
    for way in ("cold", "warm"):
        names |= {f"start.first_steps_{way}_us"}
        names |= {f"start.first_steps_{way}_us.{name}" for name in CONSTRAINTS}
        names |= {f"start.snapshot_{way}_kib.{name}" for name in CONSTRAINTS}
    assert set(found) == names
    assert min(found[f"fork.us.{size}"] for size in sizes) > 0
    # a step writes to at least two pages: the step argument and the stack. The short form has so few
    # sequences that single figures may be negative
    guests = [found[f"memory.guest_kib.{name}"] for name in CONSTRAINTS]
    assert max(guests) > 8
    mean = sum(guests) / len(guests) + found["memory.mask_rows_kib"]
    assert found["memory.per_sequence_kib"] == pytest.approx(mean, rel=0.01)
