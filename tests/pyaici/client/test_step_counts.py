"""No step, start, copy or end makes more work for client and worker than before; less must be committed."""

from __future__ import annotations

import os

import pytest

from tests.pyaici.client.step_counts import COUNTS, measure


def test_counts_are_those_of_the_committed_file() -> None:
    if not COUNTS.file.exists():
        pytest.skip(f"bytecodes of this Python are not known: run `python -m {COUNTS.module} --write`")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one processor, the worker makes other system calls")
    COUNTS.check(measure())
