from __future__ import annotations

import threading
import time

import pytest

from aicirt.ipc import ring as module
from aicirt.ipc.ring import HEADER_BYTES, Ring, spin
from lab.system.waiting import PATIENCE


@pytest.fixture(autouse=True)
def any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allows spinning, whatever the number and kind of processors."""
    monkeypatch.setattr(module, "_MAY_SPIN", True)


def both_ends() -> tuple[Ring, Ring]:
    memory = bytearray(HEADER_BYTES + 128)
    return Ring(memoryview(memory)), Ring(memoryview(memory))


def test_spinning_ends_with_a_message_or_at_its_time_limit() -> None:
    writer, reader = both_ends()
    _, empty = both_ends()
    start = time.monotonic()
    assert not spin((empty, reader), 0.02)
    assert time.monotonic() - start >= 0.02
    writer.try_write(b"here")
    assert spin((empty, reader), 10.0)
    assert reader.read() == b"here" and not reader.waiting


def test_message_that_arrives_while_spinning_is_noticed() -> None:
    writer, reader = both_ends()
    timer = threading.Timer(0.05, writer.try_write, [b"late"])
    timer.start()
    start = time.monotonic()
    assert spin((reader,), PATIENCE)
    assert time.monotonic() - start < PATIENCE / 2
    timer.join()


def test_no_spinning_where_the_peer_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAY_SPIN", False)
    writer, reader = both_ends()
    writer.try_write(b"here")
    assert not spin((reader,), 10.0)


def test_writer_publishes_its_processor() -> None:
    writer, reader = both_ends()
    assert reader.writer_cpu == -1
    writer.publish_cpu(3)
    assert reader.writer_cpu == 3
    assert reader.read() is None
