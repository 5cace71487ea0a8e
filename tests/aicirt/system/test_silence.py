"""The silence of a process counts only the time in which it could have answered."""

from __future__ import annotations

import os

from aicirt.system.silence import progress


def test_progress_reports_whether_a_process_runs_and_its_time() -> None:
    assert progress(2**22 + 1) == (False, 0.0)
    runs, seconds = progress(os.getpid())
    assert runs and seconds > 0
