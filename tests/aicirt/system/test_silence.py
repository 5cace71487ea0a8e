"""The silence of a process counts only the time in which it could have answered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from aicirt.system import silence
from aicirt.system.silence import Progress, Silence, finish, progress
from lab.system.waiting import wait_until


@dataclass
class Peer:
    """A process whose time the test chooses."""

    now: float = 100.0
    state: Progress = field(default_factory=lambda: Progress(False, 5.0, 2.0))
    measured: Silence = field(default_factory=lambda: Silence(1))

    def pass_time(self, seconds: float, *, runnable: bool, used: float = 0.0, waited: float = 0.0) -> float:
        """Passes time in pieces of a look; returns the silence. The process waits until the end of it."""
        for _ in range(looks := round(seconds / silence.LOOK_SECONDS)):
            self.now += silence.LOOK_SECONDS
            self.state = Progress(
                runnable, self.state.used + used / looks, self.state.waited + waited / looks
            )
            self.measured.seconds()
        return self.measured.seconds()


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    peer = Peer()
    monkeypatch.setattr(silence, "time", SimpleNamespace(monotonic=lambda: peer.now))
    monkeypatch.setattr(silence, "progress", lambda _pid, family: peer.state)
    assert peer.measured.seconds() == 0, "the first call begins to measure"
    return peer


def test_all_time_of_a_sleeping_or_stopped_process_counts(peer: Peer) -> None:
    assert peer.pass_time(30, runnable=False) == pytest.approx(30)


def test_only_cpu_time_of_a_runnable_process_counts(peer: Peer) -> None:
    assert peer.pass_time(1000, runnable=True, used=3) == pytest.approx(3)


def test_time_in_which_a_sleeper_had_waited_for_a_processor_does_not_count(peer: Peer) -> None:
    assert peer.pass_time(10, runnable=False, used=1, waited=8) == pytest.approx(2)


def test_time_of_several_threads_counts_no_more_than_once(peer: Peer) -> None:
    assert peer.pass_time(10, runnable=True, used=40) == pytest.approx(10)


def test_a_caller_that_was_kept_from_running_does_not_blame_the_process(peer: Peer) -> None:
    peer.now += 3600
    assert peer.measured.seconds() <= 1


def test_limits_are_longer_on_a_slower_machine(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "pace", lambda: 4.0)
    peer.pass_time(30, runnable=False)
    assert peer.measured.longer_than(7) and not peer.measured.longer_than(8)


def test_progress_reports_whether_a_process_runs_and_its_time() -> None:
    assert progress(2**22 + 1) == (False, 0.0, 0.0)
    runs, seconds, waited = progress(os.getpid())
    assert runs and seconds > 0 and waited >= 0


def test_progress_of_a_family_includes_that_of_descendants() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as parent:
        try:
            wait_until(lambda: progress(parent.pid, family=True).used - progress(parent.pid).used > 0.5)
            wait_until(
                lambda: progress(parent.pid, family=True).runnable and not progress(parent.pid).runnable
            )
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_thread_that_runs_makes_a_process_runnable() -> None:
    code = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            wait_until(lambda: progress(process.pid).used > 0.5 and progress(process.pid).runnable)
        finally:
            process.kill()


def test_a_command_may_take_as_long_as_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "progress", lambda _pid, family: Progress(True, 0.0, 0.0))
    code = "import sys, time; time.sleep(0.5); print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = finish([sys.executable, "-c", code], 0.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_silent_command_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        finish([sys.executable, "-c", "import time; time.sleep(1e6)"], 1.0)
