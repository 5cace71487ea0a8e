from __future__ import annotations

import os
import resource
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import ArgumentError, ProtocolError, error_from_wire
from aicirt.contract.messages import Call, Splice, decode, encode
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from lab.system.processes import open_files
from lab.system.waiting import PATIENCE
from pyaici.client.channel import Peer


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


def test_frames_carry_descriptors_and_arrive_in_parts() -> None:
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
    (got,) = right.take_fds()
    os.write(got, b"!")
    os.close(got)
    assert os.read(read_fd, 1) == b"!"
    assert right.receive() == [2, "b", {}, 0]
    assert right.poll() is None
    sender.join()
    left.close()
    assert right.poll() is None and right.closed
    right.close()
    os.close(read_fd)
    os.close(write_fd)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 10, 30_000])), min_size=1, max_size=12),
    st.data(),
)
def test_descriptors_arrive_with_their_own_message(
    messages: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Holds also for messages that arrive together or in parts, and if the process can take no descriptor."""
    ours, theirs = socket.socketpair()
    left, right = FrameSocket(ours), FrameSocket(theirs)
    ours.settimeout(PATIENCE)
    names = [f"{number}" for number in range(len(messages))]
    received: dict[str, list[bytes]] = {}
    pending: list[str] = []
    files = []
    fillers: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def drain() -> None:
        while pending:
            message = right.receive()
            assert message is not None and message[1] == pending.pop(0)
            fds = right.take_fds()
            received[message[1]] = [os.pread(fd, 20, 0) for fd in fds]
            for fd in fds:
                os.close(fd)

    short = data.draw(st.integers(-1, len(messages) - 1))
    try:
        for number, (name, (count, size)) in enumerate(zip(names, messages, strict=True)):
            mine = [os.memfd_create("x") for _ in range(count)]
            files += mine
            for fd in mine:
                os.pwrite(fd, name.encode(), 0)
            if number == short and count:
                drain()
                room = data.draw(st.integers(0, count - 1))
                highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
                while (fd := os.dup(0)) < highest:
                    fillers.append(fd)
                fillers.append(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1 + room, limits[1]))
            if size > 1000 and pending:  # pending messages must fit into the socket's buffer
                drain()
            left.send(Call(number, name, {"x": b"-" * size}), mine or None)
            pending.append(name)
            if resource.getrlimit(resource.RLIMIT_NOFILE) != limits:
                drain()
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                assert received[name] == [name.encode()] * room
                received[name] = [name.encode()] * count
            elif data.draw(st.booleans()):
                drain()
        drain()
        assert received == {
            name: [name.encode()] * count for name, (count, _) in zip(names, messages, strict=True)
        }
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in (*files, *fillers):
            os.close(fd)
        left.close()
        right.close()


def test_close_closes_descriptors_that_were_not_taken() -> None:
    ours, theirs = socket.socketpair()
    left, right = FrameSocket(ours), FrameSocket(theirs)
    before = open_files()
    for number in range(3):
        left.send(Call(number, "a", {}), [0, 0])
    assert right.receive() == [0, "a", {}, 0]
    assert right.receive() == [1, "a", {}, 0]
    assert not right._buffer or right._arrived
    left.close()
    right.close()
    assert open_files() == before - 2


def test_a_doorbell_wakes_and_times_out() -> None:
    bell = Doorbell.create()
    assert bell.file is not None
    other = Doorbell.of_file(bell.file.fd)
    assert not bell.wait_for_ring(0)
    other.ring()
    other.ring()
    assert bell.rung and bell.wait_for_ring(1)
    assert not bell.rung, "one wait consumes both rings"
    started = time.monotonic()
    assert not bell.wait_for_ring(0.05)
    assert time.monotonic() - started >= 0.04
    other.close()
    bell.close()
    bell.ring()
    assert not bell.rung and not bell.wait_for_ring(0), "a ring after the end has no effect"


def test_a_peer_is_alive_until_it_ends() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    peer = Peer(pid)
    assert peer.alive()
    os.kill(pid, 9)
    deadline = time.monotonic() + PATIENCE
    while peer.alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not peer.alive()
    os.waitpid(pid, 0)
    peer.close()
    with pytest.raises(ProcessLookupError):
        Peer(pid)
