"""Messages on a socket: deadlines, the end of the stream, and replies that cannot be sent."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.contract.messages import Call, Reply
from aicirt.ipc.frames import FrameSocket, frame
from lab.system.processes import open_files
from lab.system.waiting import PATIENCE


@pytest.fixture
def pair() -> Iterator[tuple[FrameSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    yield FrameSocket(ours), theirs
    ours.close()
    theirs.close()


def test_receive_ends_at_its_deadline(pair: tuple[FrameSocket, socket.socket]) -> None:
    """Holds also for a deadline in the past, and for a socket with a longer timeout."""
    frames, other = pair
    for seconds in (0.0, -1.0, 0.05):
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            frames.receive(started + seconds)
        assert seconds <= time.monotonic() - started < PATIENCE / 2
    other.sendall(frame(Reply(1, None, "late")))
    assert frames.receive(time.monotonic()) == [1, None, "late", 0]


def test_buffered_messages_are_returned_after_the_deadline(pair: tuple[FrameSocket, socket.socket]) -> None:
    frames, other = pair
    other.sendall(frame(Reply(1, None, "a")) + frame(Reply(2, None, "b")))
    assert [frames.receive(time.monotonic()), frames.receive(0.0)] == [[1, None, "a", 0], [2, None, "b", 0]]
    with pytest.raises(TimeoutError):
        frames.receive(0.0)


def test_closed_socket_returns_none_instead_of_a_timeout(pair: tuple[FrameSocket, socket.socket]) -> None:
    frames, other = pair
    other.close()
    assert frames.receive(time.monotonic()) is None


def test_unsendable_reply_becomes_an_error_for_its_caller_only(
    pair: tuple[FrameSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, other = pair
    monkeypatch.setattr("aicirt.ipc.frames.MAX_FRAME", 1000)
    for value in (b"x" * 2000, {"n": 1 << 70}, object()):
        other.sendall(frame(Reply(7, None, value)))
        number, error, found, _ = frames.receive(time.monotonic() + PATIENCE) or []
        assert (number, found) == (7, None) and error[0] == "protocol"
        assert error[1].startswith("the answer cannot be sent: ")
    other.sendall(frame(Reply(8, ["module", "m" * 2000, {}], None)))
    assert (frames.receive(time.monotonic() + PATIENCE) or [])[1][0] == "protocol"
    other.sendall(frame(Reply(9, None, "fits")))
    assert frames.receive(time.monotonic() + PATIENCE) == [9, None, "fits", 0]
    with pytest.raises(ProtocolError, match=r"a message of .* is over the limit of 1000"):
        frame(Call(1, "upload", {"wasm": bytes(2000)}))


def test_descriptors_that_belong_to_no_message_are_refused(
    pair: tuple[FrameSocket, socket.socket],
) -> None:
    """A peer that sends many would otherwise use up the descriptors of this process."""
    frames, other = pair
    before = open_files()
    other.sendall((1000).to_bytes(4, "little"))
    for _ in range(3):
        socket.send_fds(other, [b"x"], [0] * 16)
    with pytest.raises(ProtocolError, match="descriptors arrived that belong to no message"):
        frames.receive()
    frames.close()
    assert open_files() == before - 1


def test_poll_once_reads_a_limited_part_of_a_long_message(pair: tuple[FrameSocket, socket.socket]) -> None:
    frames, other = pair
    other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    other.sendall(frame(Reply(1, None, bytes(100_000))))
    assert frames.poll(once=True) is None
    assert (frames.poll(once=True) or [])[0] == 1
