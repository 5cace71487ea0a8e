"""Programs that tests start by fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from lab import ROOT
from lab.system.processes import family, left_behind
from lab.system.waiting import wait_until

#: starts a program that does not end by itself, and says so
_TEST = """
import os, time
from lab.system.forked import Forked
nothing = os.open(os.devnull, os.O_WRONLY)
options = dict(stdout=nothing, stderr=nothing, start_new_session=True)
Forked("http.server", ["--bind", "127.0.0.1", "0"], imports=[], **options)
print("started", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_programs_end_with_tests_that_are_killed(number: signal.Signals) -> None:
    """`timeout` sends SIGTERM to the tests and to all processes of their group."""
    command = [sys.executable, "-c", _TEST]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as tests:
        assert tests.stdout is not None
        wait_until(lambda: tests.stdout is not None and tests.stdout.readline() == "started\n")
        members = family(tests.pid)
        assert len(members) >= 3, "the tests, the process that forks, and the program"
        if number == signal.SIGTERM:
            os.killpg(tests.pid, number)
        else:
            tests.kill()
    assert left_behind(members) == []
