from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.errors import ArgumentError, ProtocolError, error_from_wire
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.messages import Call, Splice, decode, encode
from aicirt.ipc.peer import Peer


def test_a_message_keeps_its_fields() -> None:
    assert decode(encode(Splice(7, 5, 2, [1, 2, 3]))) == [7, 5, 2, [1, 2, 3]]


@given(st.binary(max_size=50))
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    try:
        assert isinstance(decode(data), list)
    except ProtocolError:
        pass


def test_errors_keep_type_message_and_detail() -> None:
    error = error_from_wire(ArgumentError("bad regex", position=3).to_wire())
    assert isinstance(error, ArgumentError)
    assert (str(error), error.detail) == ("bad regex", {"position": 3})


def test_frames_carry_descriptors_and_survive_any_cut() -> None:
    ours, theirs = socket.socketpair()
    left, right = FrameSocket(ours), FrameSocket(theirs)
    read_fd, write_fd = os.pipe()

    def send() -> None:
        left.send(Call(1, "a", {"x": b"\0" * 3_000_000}), [write_fd])
        left.send(Call(2, "b", {}))

    sender = threading.Thread(target=send)
    sender.start()
    first = None
    while first is None:
        first = right.poll()
    assert first[:2] == [1, "a"]
    os.write(right.fds.pop(), b"!")
    assert os.read(read_fd, 1) == b"!"
    assert right.receive() == [2, "b", {}, 0]
    assert right.poll() is None
    sender.join()
    left.close()
    assert right.poll() is None and right.closed
    right.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_doorbell_wakes_and_times_out() -> None:
    bell = Doorbell.create()
    other = Doorbell.open(bell.name)
    assert not bell.wait(0)
    other.ring()
    other.ring()
    assert bell.rung and bell.wait(1)
    assert not bell.rung, "both rings were for one look"
    started = time.monotonic()
    assert not bell.wait(0.05)
    assert time.monotonic() - started >= 0.04
    other.close()
    bell.close()
    assert not list(Path("/dev/shm").glob(f"*{bell.name.lstrip('/')}*"))


def test_a_peer_is_alive_until_it_ends() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    peer = Peer(pid)
    assert peer.alive()
    os.kill(pid, 9)
    deadline = time.monotonic() + 5
    while peer.alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not peer.alive()
    os.waitpid(pid, 0)
    peer.close()
    with pytest.raises(ProcessLookupError):
        Peer(pid)
