"""Committed counts: which differences a test reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counts import TOLERANCE, Counts

COUNTS = Counts(Path("no such file"), "tests.somewhere", small=20_000)
KNOWN = {"case": {"init": 1000, "masks": [50_000, 100]}}


def test_count_may_differ_by_the_tolerance_only() -> None:
    more = {"case": {"init": int(1000 * (1 + TOLERANCE)), "masks": [50_000, 1000]}}
    assert COUNTS.differences(more, KNOWN) == []
    assert COUNTS.differences({"case": {"init": 1030, "masks": [52_000, 100]}}, KNOWN) == [
        "case: init 1,030 instead of 1,000 (+3.0%)",
        "case: all masks 52,100 instead of 50,100 (+4.0%)",
        "case: masks 0 52,000 instead of 50,000 (+4.0%)",
    ]
    assert COUNTS.differences({"case": {"init": 900, "masks": [50_000]}}, KNOWN) == [
        "case: init 900 instead of 1,000 (-10.0%)",
        "case: number of masks 1 instead of 2 (-50.0%)",
    ]


def test_new_and_missing_cases_and_counts_are_reported() -> None:
    assert COUNTS.differences({}, KNOWN) == ["case: no longer measured"]
    assert COUNTS.differences(KNOWN, {}) == ["case: new"]
    found = {"case": {**KNOWN["case"], "again": 5}}
    assert COUNTS.differences(found, KNOWN) == ["case: again 5 instead of 0"]
    assert COUNTS.differences(KNOWN, found) == ["case: again 0 instead of 5 (-100.0%)"]


def test_check_names_the_command_that_updates_the_file() -> None:
    with pytest.raises(AssertionError, match="run `python -m tests"):
        COUNTS.check(KNOWN)
