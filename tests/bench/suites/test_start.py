"""The suite `start` runs in its short form: a second start of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


@pytest.mark.slow
def test_start_reports_the_second_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("start", tmp_path, capsys)
    assert set(found) == {"start.second_s"} and found["start.second_s"] > 0
