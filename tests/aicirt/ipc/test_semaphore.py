"""Waits last as long as they are told to, whatever happens to the time of day."""

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
from aicirt.ipc.semaphore import Semaphore

#: for programs that run with it each reading of the time of day is an hour more than the last but one
CLOCK = """
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void) { static unsigned calls; return ++calls % 2 ? 3600 : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return (int)failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""
WAITS = """
import time
from aicirt.ipc.doorbell import Doorbell
readings = [time.time() for _ in range(4)]
assert max(readings) - min(readings) > 3000, "the clock does not jump"
bell = Doorbell.create()
start = time.monotonic()
for _ in range(4):
    assert not bell.wait(0.02)
assert time.monotonic() - start < 5
bell.ring()
assert bell.wait(0.02)
bell.close()
"""


@pytest.fixture
def semaphore() -> Semaphore:
    made = Semaphore(names.fresh_name(), posix_ipc.O_CREX, mode=0o600, initial_value=0)
    made.unlink()
    return made


def test_it_waits_and_is_woken(semaphore: Semaphore) -> None:
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


def test_it_is_closed_once(semaphore: Semaphore) -> None:
    semaphore.close()
    with pytest.raises(posix_ipc.ExistentialError):
        semaphore.close()


def test_there_is_none_of_this_name() -> None:
    with pytest.raises(posix_ipc.ExistentialError):
        Semaphore(names.fresh_name())


def test_a_clock_that_is_set_back_prolongs_no_wait(tmp_path: Path) -> None:
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*compiler, str(source)], check=True, capture_output=True)
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", WAITS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
