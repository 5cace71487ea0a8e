"""No order of events loses a message, a wake-up or a row."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.ipc.ring import Doorbell, Ring
from aicirt.ipc.segment import Layout
from aicirt.worker.results import RowPool
from tests.aicirt.ipc.interleavings import Run, SharedArray, StuckError, explore, shared_bell, shared_ring
from tests.thorough import cases

#: with three there are ten times as many orders
PREEMPTIONS = cases(2, 3)


def receive(ring: Ring, bell: Doorbell) -> bytes:
    """Receives as `WorkerLink.expect` and the worker's loop do: check, sleep, check again."""
    while (message := ring.read()) is None:
        bell.wait_for_ring(1)
    return message


def send(ring: Ring, bell: Doorbell, message: bytes) -> None:
    """Sends as `WorkerLink.send` does. The messages of these tests always fit into the ring."""
    assert ring.try_write(message)
    bell.ring()


def test_messages_in_one_direction_arrive_in_order() -> None:
    texts = [b"one", b"two two two two two", b"3"]

    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 64), shared_bell(run)
        return [
            lambda: [send(writer, bell, text) for text in texts] and None,
            lambda: _same([receive(reader, bell) for _ in texts], texts),
        ]

    assert explore(make, PREEMPTIONS) > 600


def _same(found: object, expected: object) -> None:
    assert found == expected


def test_message_larger_than_the_ring_arrives_in_frames() -> None:
    """The writer polls for room, since a reader does not ring when it has made room."""
    text = bytes(range(50))

    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 32), shared_bell(run)

        def write() -> None:
            for payload, more in writer.frames(text):
                while not writer.try_write(payload, more):
                    bell.ring()
                    run.access(lambda: writer._positions._memory[0] == writer._positions._memory[8])  # type: ignore[attr-defined]
            bell.ring()

        return [write, lambda: _same(receive(reader, bell), text)]

    assert explore(make, PREEMPTIONS) > 600


def test_requests_and_responses_in_both_directions() -> None:
    """Uses two rings and two bells; the worker empties its ring before it sleeps."""

    def make(run: Run) -> list[Callable[[], None]]:
        (ask, requests), (answer, responses) = shared_ring(run, 64), shared_ring(run, 64)
        to_worker, to_client = shared_bell(run), shared_bell(run)

        def client() -> None:
            for number in range(2):
                send(ask, to_worker, b"question %d" % number)
                to_worker.ring()  # as `wake` does, with nothing to read
                assert receive(responses, to_client) == b"answer to question %d" % number

        def worker() -> None:
            served = 0
            while served < 2:
                to_worker.wait_for_ring(1)
                while (message := requests.read()) is not None:
                    send(answer, to_client, b"answer to " + message)
                    served += 1

        return [client, worker]

    assert explore(make, PREEMPTIONS) > 600


def test_row_is_not_written_while_the_client_reads_it() -> None:
    """Uses as few rows as possible. The worker frees the row named in a message before it allocates one."""
    layout = Layout(64, num_rows=2, num_dense=0, ring_bytes=1 << 12)

    def make(run: Run) -> list[Callable[[], None]]:
        pool = RowPool(memoryview(bytearray(layout.total)), layout, dense=False)
        rows = SharedArray(run, [b""] * 2)
        (ask, requests), (answer, responses) = shared_ring(run, 64), shared_ring(run, 64)
        to_worker, to_client = shared_bell(run), shared_bell(run)

        def client() -> None:
            held = b""
            for number in range(3):
                send(ask, to_worker, held or b"none")
                held = receive(responses, to_client)
                stamp = b"mask %d" % number
                assert [rows[held[0]], rows[held[0]]] == [stamp, stamp]

        def worker() -> None:
            for number in range(3):
                message = receive(requests, to_worker)
                if message != b"none":
                    pool.give_back(message)
                row, generation, _ = pool.take_row()
                rows[row] = b"mask %d" % number
                send(answer, to_client, bytes([row, generation]))

        return [client, worker]

    assert explore(make) > 300


# -- the explorer finds errors that are made on purpose --------------------------------------------


def test_explorer_finds_a_lost_wake_up() -> None:
    """A reader that discards rings after it has checked the ring misses a message."""

    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 64), shared_bell(run)

        def read() -> None:
            while reader.read() is None:
                bell.wait_for_ring(0)
                bell.wait_for_ring(1)

        return [lambda: send(writer, bell, b"x"), read]

    with pytest.raises(StuckError, match="no program can continue"):
        explore(make)


def test_explorer_finds_a_position_that_is_published_too_early() -> None:
    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 64), shared_bell(run)

        def write() -> None:
            writer._positions[0] = 8
            writer._data[0:8] = b"\4\0\0\0text"
            bell.ring()

        return [write, lambda: _same(receive(reader, bell), b"text")]

    with pytest.raises((AssertionError, ProtocolError)):
        explore(make)


def test_explorer_finds_a_row_that_is_written_too_early() -> None:
    def make(run: Run) -> list[Callable[[], None]]:
        row, (writer, reader), bell = SharedArray(run, [b"old"]), shared_ring(run, 64), shared_bell(run)

        def worker() -> None:
            row[0] = b"first"
            send(writer, bell, b"first")
            row[0] = b"second"

        def client() -> None:
            text = receive(reader, bell)
            assert row[0] == text

        return [worker, client]

    with pytest.raises(AssertionError):
        explore(make)


def test_explorer_tries_every_order() -> None:
    """Two programs of two steps each: 6 orders, and with no preemption 2."""
    seen: list[str] = []

    def make(run: Run) -> list[Callable[[], None]]:
        seen.append("")

        def program(name: str) -> Callable[[], None]:
            def steps() -> None:
                for _ in range(2):
                    run.access()
                    seen[-1] += name

            return steps

        return [program("a"), program("b")]

    before = set(threading.enumerate())
    explore(make, preemptions=9)
    assert set(seen) == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}
    seen.clear()
    explore(make, preemptions=0)
    assert sorted(set(seen)) == ["aabb", "bbaa"]
    assert set(threading.enumerate()) <= before
