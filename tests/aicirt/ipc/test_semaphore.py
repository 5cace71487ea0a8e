"""Waits on semaphores, also while the system's clock is set."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.ipc import doorbell, names
from aicirt.ipc.doorbell import Doorbell, Semaphore
from aicirt.system.files import Descriptor
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
def semaphore() -> Iterator[Semaphore]:
    bell = Doorbell.create()
    yield bell._semaphore
    bell.close()


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_acquire_times_out_or_is_woken(
    semaphore: Semaphore, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """`old`: with a C library before 2.30."""
    if old:
        monkeypatch.setattr(doorbell, "_clockwait", None)
    start = time.monotonic()
    assert not semaphore.acquire(0.05)
    assert time.monotonic() - start > 0.045
    assert not semaphore.acquire(0)
    waker = threading.Timer(0.05, semaphore.release)
    waker.start()
    assert semaphore.acquire(PATIENCE)
    waker.join()
    assert semaphore.value == 0


def test_a_thread_may_wait_while_another_closes(semaphore: Semaphore) -> None:
    waiter = threading.Thread(target=semaphore.acquire, args=(0.2,))
    waiter.start()
    semaphore.close()
    semaphore.close()
    waiter.join()
    semaphore.release()
    assert semaphore.value == 0 and not semaphore.acquire(1)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x" * 31)
    for path in (tmp_path / "short", tmp_path, Path("/dev/null")):
        with pytest.raises(ProtocolError, match="not the file of a semaphore"):
            Doorbell(Descriptor(os.open(path, os.O_RDONLY)))
    (tmp_path / "long").write_bytes(b"x" * 32)
    with pytest.raises(OSError, match="denied"):
        Doorbell(Descriptor(os.open(tmp_path / "long", os.O_RDONLY)))


def test_opening_an_unknown_name_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        Doorbell.open(names.fresh_name())


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
