"""Waits on semaphores, also while the system's clock is set."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import posix_ipc
import pytest

from aicirt.ipc import names
from aicirt.ipc.doorbell import Semaphore
from lab import ROOT
from lab.campaigns.short_supply import jumping_clock
from lab.system.waiting import PATIENCE

WAITS = """
import time
from aicirt.ipc.doorbell import Doorbell
readings = [time.time() for _ in range(4)]
assert max(readings) - min(readings) > 3000, "the clock must jump"
bell = Doorbell.create()
start = time.monotonic()
for _ in range(4):
    assert not bell.wait(0.02)
assert time.monotonic() - start < 1000, "the jumps are of an hour"
bell.ring()
assert bell.wait(0.02)
bell.close()
"""


@pytest.fixture
def semaphore() -> Semaphore:
    made = Semaphore(names.fresh_name(), posix_ipc.O_CREX, mode=0o600, initial_value=0)
    made.unlink()
    return made


def test_acquire_times_out_or_is_woken(semaphore: Semaphore) -> None:
    start = time.monotonic()
    with pytest.raises(posix_ipc.BusyError):
        semaphore.acquire(0.05)
    assert time.monotonic() - start > 0.045
    with pytest.raises(posix_ipc.BusyError):
        semaphore.acquire(0)
    waker = threading.Timer(0.05, semaphore.release)
    waker.start()
    semaphore.acquire(20)
    waker.join()
    assert semaphore.value == 0
    semaphore.close()


def test_closing_twice_is_an_error(semaphore: Semaphore) -> None:
    semaphore.close()
    with pytest.raises(posix_ipc.ExistentialError):
        semaphore.close()


def test_opening_an_unknown_name_is_an_error() -> None:
    with pytest.raises(posix_ipc.ExistentialError):
        Semaphore(names.fresh_name())


def test_setting_the_clock_back_does_not_prolong_a_wait(tmp_path: Path) -> None:
    library = jumping_clock(tmp_path)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WAITS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
