from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import ProtocolError
from aicirt.ipc.ring import HEADER_BYTES, Ring


def both_ends(capacity: int) -> tuple[Ring, Ring, bytearray]:
    memory = bytearray(HEADER_BYTES + capacity)
    return Ring(memoryview(memory)), Ring(memoryview(memory)), memory


@given(st.lists(st.one_of(st.binary(max_size=300), st.none()), max_size=60))
def test_messages_arrive_whole_and_in_order(actions: list[bytes | None]) -> None:
    """An action of None means that the reader reads one message. Long messages are split into frames."""
    writer, reader, _ = both_ends(128)
    waiting: list[tuple[bytes, bool]] = []
    sent: list[bytes] = []
    got: list[bytes] = []
    for action in [*actions, *[None] * 400]:
        if action is not None:
            sent.append(action)
            waiting += writer.frames(action)
        else:
            message = reader.read()
            if message is not None:
                got.append(message)
            assert reader.in_pieces <= (message is None), "true only between frames of a message"
        while waiting and writer.try_write(*waiting[0]):
            del waiting[0]
    assert got == sent


def test_full_ring_accepts_no_message() -> None:
    writer, reader, _ = both_ends(64)
    assert writer.try_write(b"x" * 28)
    assert writer.try_write(b"y" * 28)
    assert not writer.try_write(b"")
    assert reader.read() == b"x" * 28
    assert writer.try_write(b"z")
    assert [reader.read(), reader.read(), reader.read()] == [b"y" * 28, b"z", None]


@pytest.mark.parametrize("written,read", [(5, 0), (1 << 40, 0), (0, 8)])
def test_impossible_positions_are_refused(written: int, read: int) -> None:
    _, reader, memory = both_ends(64)
    memory[0:8] = written.to_bytes(8, "little")
    memory[64:72] = read.to_bytes(8, "little")
    with pytest.raises(ProtocolError):
        while reader.read() is not None:
            pass


def test_a_position_that_would_overflow_is_refused() -> None:
    writer, _, memory = both_ends(64)
    memory[0:8] = memory[64:72] = b"\xff" * 8
    with pytest.raises(ProtocolError):
        writer.try_write(b"x")


def test_frame_longer_than_the_written_bytes_is_refused() -> None:
    _, reader, memory = both_ends(64)
    memory[HEADER_BYTES : HEADER_BYTES + 4] = (1000).to_bytes(4, "little")
    memory[0:8] = (16).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="1000 bytes"):
        reader.read()
