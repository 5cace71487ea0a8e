"""No start and no mask costs more than before, in fuel; better ones must be committed."""

from __future__ import annotations

from tests.controllers.costs import TOLERANCE, committed, differences, measure


def test_costs_are_those_of_the_committed_file() -> None:
    lines = differences(measure(), committed())
    problem = "costs differ; if that is intended, run `python -m tests.controllers.costs --write`"
    assert not lines, "\n".join([problem, *lines])


def test_a_cost_may_differ_by_the_tolerance_only() -> None:
    known = {"case": {"init": 1000, "masks": [50_000, 100]}}
    more = {"case": {"init": int(1000 * (1 + TOLERANCE)), "masks": [50_000, 1000]}}
    assert differences(more, known) == []
    assert differences({"case": {"init": 1030, "masks": [52_000, 100]}}, known) == [
        "case: init 1,030 instead of 1,000 (+3.0%)",
        "case: all masks 52,100 instead of 50,100 (+4.0%)",
        "case: mask 0 52,000 instead of 50,000 (+4.0%)",
    ]
    assert differences({"case": {"init": 900, "masks": [50_000]}}, known) == [
        "case: init 900 instead of 1,000 (-10.0%)",
        "case: 1 masks instead of 2",
    ]
    assert differences({}, known) == ["case: no longer measured"]
