"""Waits on doorbells: beside a peer that writes anything there, and while the system's clock is set."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.ipc.ring import Doorbell
from lab import ROOT
from lab.campaigns.short_supply import jumping_clock
from lab.system.waiting import PATIENCE

WAITS = """
import time
from aicirt.ipc.ring import Doorbell
readings = [time.time() for _ in range(4)]
assert max(readings) - min(readings) > 3000, "the clock must jump"
bell = Doorbell.create()
start = time.monotonic()
for _ in range(4):
    assert not bell.wait_for_ring(0.02)
assert time.monotonic() - start < 1000, "the jumps are of an hour"
bell.ring()
assert bell.wait_for_ring(0.02)
bell.close()
"""


@pytest.fixture
def bell() -> Iterator[Doorbell]:
    bell = Doorbell.create()
    yield bell
    bell.close()


def peer_of(bell: Doorbell) -> Doorbell:
    assert bell.file is not None
    return Doorbell.of_file(bell.file.fd)


def test_a_ring_of_another_process_ends_a_wait(bell: Doorbell) -> None:
    peer = peer_of(bell)
    if not (child := os.fork()):
        while not peer._words[1]:  # type: ignore[index]
            pass
        peer.ring()
        os._exit(0)
    assert bell.wait_for_ring(PATIENCE) and not bell.rung
    assert os.waitpid(child, 0)[1] == 0


def test_a_thread_may_wait_while_another_closes(bell: Doorbell) -> None:
    waiter = threading.Thread(target=bell.wait_for_ring, args=(0.2,))
    waiter.start()
    bell.close()
    bell.close()
    waiter.join()
    bell.ring()
    assert not bell.rung and not bell.wait_for_ring(1)


def test_a_peer_that_writes_anything_neither_holds_nor_ends_a_process(bell: Doorbell) -> None:
    """The C library aborts, or waits for the machine's uptime, if a peer has changed its semaphore."""
    assert bell.file is not None
    with mmap.mmap(bell.file.fd, mmap.PAGESIZE) as memory:
        dice = random.Random(7)
        numbers = [0, 1, 2, 9, 0x50, 0x89, 1 << 31, (1 << 32) - 1]
        for _ in range(200):
            for at in range(0, 64, 4):
                memory[at : at + 4] = dice.choice(numbers).to_bytes(4, "little")
            bell.wait_for_ring(0.001)
            for at in range(0, 64, 4):
                memory[at : at + 4] = dice.choice(numbers).to_bytes(4, "little")
            bell.ring()
    assert bell.wait_for_ring(0)


def test_a_peer_that_keeps_waking_the_waiter_does_not_prolong_its_wait(bell: Doorbell) -> None:
    """The peer clears the words all the time, and moves sleepers elsewhere as the kernel allows."""
    peer = peer_of(bell)
    if not (child := os.fork()):
        requeue = ctypes.CDLL(None).syscall
        words = peer._words
        assert words is not None
        while True:
            words[0] = words[1] = 0
            requeue(202 if os.uname().machine == "x86_64" else 98, words, 3, 0, 1, ctypes.byref(words, 4), 0)
    try:
        for _ in range(20):
            bell.wait_for_ring(0.01)
            bell.ring()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(bytes(mmap.PAGESIZE))
    for path in (tmp_path / "page", tmp_path, Path("/dev/null")):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(ProtocolError, match="the doorbell is not a memory file of a sealed size"):
            Doorbell.of_file(fd)
        os.close(fd)


def test_a_peer_cannot_shrink_or_fill_the_file(bell: Doorbell) -> None:
    """The first would end the process at its next look; the second would take the machine's memory."""
    assert bell.file is not None
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(bell.file.fd, size)
    with pytest.raises(PermissionError):
        os.pwrite(bell.file.fd, b"x", mmap.PAGESIZE)


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
