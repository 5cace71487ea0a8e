from __future__ import annotations

import os
import threading
import time

import pytest

from aicirt.ipc import spin as module
from aicirt.ipc.cpu import current_cpu, step_aside
from aicirt.ipc.ring import HEADER_BYTES, Ring
from aicirt.ipc.spin import spin


@pytest.fixture(autouse=True)
def any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number and kind of processors."""
    monkeypatch.setattr(module, "_MAY_SPIN", True)


def both_ends() -> tuple[Ring, Ring]:
    memory = bytearray(HEADER_BYTES + 128)
    return Ring(memoryview(memory)), Ring(memoryview(memory))


def test_spinning_ends_with_a_message_or_in_time() -> None:
    writer, reader = both_ends()
    _, empty = both_ends()
    start = time.monotonic()
    assert not spin((empty, reader), 0.02)
    assert 0.02 <= time.monotonic() - start < 2
    writer.try_write(b"here")
    assert spin((empty, reader), 10.0)
    assert reader.read() == b"here" and not reader.waiting


def test_a_message_that_comes_meanwhile_is_seen() -> None:
    writer, reader = both_ends()
    timer = threading.Timer(0.05, writer.try_write, [b"late"])
    timer.start()
    start = time.monotonic()
    assert spin((reader,), 30.0)
    assert time.monotonic() - start < 25
    timer.join()


def test_nobody_spins_where_the_peer_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAY_SPIN", False)
    writer, reader = both_ends()
    writer.try_write(b"here")
    assert not spin((reader,), 10.0)


def test_the_writer_says_where_it_runs() -> None:
    writer, reader = both_ends()
    assert reader.writer_cpu == -1
    writer.tell_cpu(3)
    assert reader.writer_cpu == 3
    assert reader.read() is None


def test_stepping_aside_changes_the_processor_and_nothing_else() -> None:
    allowed = os.sched_getaffinity(0)
    for _ in range(20):
        here = current_cpu()
        os.sched_setaffinity(0, {here})  # so that nobody else moves us meanwhile
        step_aside(here)
        assert os.sched_getaffinity(0) == {here}, "there was nowhere to go"
        os.sched_setaffinity(0, allowed)
    pinned = min(allowed)
    os.sched_setaffinity(0, {pinned, max(allowed)})
    try:
        here = current_cpu()
        step_aside(here + 1000)
        step_aside(here)
        assert os.sched_getaffinity(0) == {pinned, max(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
