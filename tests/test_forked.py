"""Programs that tests start by fork."""

from __future__ import annotations

import subprocess
import sys

from lab import ROOT
from lab.system.processes import family, left_behind
from lab.system.waiting import wait_until

#: starts a program that does not end by itself, and says so
_TEST = """
import os, time
from lab.system.forked import Forked
nothing = os.open(os.devnull, os.O_WRONLY)
Forked("http.server", ["--bind", "127.0.0.1", "0"], imports=[], stdout=nothing, stderr=nothing)
print("started", flush=True)
time.sleep(3600)
"""


def test_programs_end_with_tests_that_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TEST], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        wait_until(lambda: tests.stdout is not None and tests.stdout.readline() == "started\n")
        members = family(tests.pid)
        assert len(members) >= 3, "the tests, the process that forks, and the program"
        tests.kill()
    assert left_behind(members) == []
