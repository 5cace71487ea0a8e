"""Snapshots that are sent to another process, and invalid descriptions of snapshots."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.system.files import sealed
from aicirt.wasm import Export, Instance
from aicirt.wasm.program import Snapshot
from aicirt.wasm.snapshot import fork, from_wire, map_readonly, start_from, take_snapshot, to_wire
from lab.system.processes import open_files
from tests.thorough import cases

Make = Callable[..., Instance]
#: counts its calls in a global and in two places of memory; a second 64 KiB are grown in the first call
COUNTER = """(global $calls (mut i32) (i32.const 0))
(func (export "aici_pre_process") (result i32)
  (if (i32.eqz (global.get $calls)) (then (drop (memory.grow (i32.const 1)))))
  (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
  (i32.store (i32.const 40000) (global.get $calls))
  (i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.const 10)))
  (i32.add (i32.load (i32.const 40000)) (i32.load (i32.const 70000))))"""
SHARED = b"what all guests share" + bytes(5000)


@pytest.fixture
def shared() -> Iterator[tuple[int, int]]:
    buffer = ctypes.create_string_buffer(SHARED, len(SHARED))
    fd = sealed("shared", len(SHARED), [(ctypes.addressof(buffer), 0, len(SHARED))])
    yield fd, len(SHARED)
    os.close(fd)


def sent(snapshot: Snapshot) -> tuple[list[Any], int]:
    """Returns the description and the file as another process receives them."""
    wire, fd = to_wire(snapshot)
    return msgpack.unpackb(msgpack.packb(wire)), os.dup(fd) if fd >= 0 else -1


def test_received_snapshot_continues_where_its_guest_stood(make: Make, shared: tuple[int, int]) -> None:
    parent = make(COUNTER)
    assert [parent.call(Export.PRE) for _ in range(2)] == [11, 22]
    address = map_readonly(parent, *shared)  # after the memory that has grown
    assert parent.call(Export.PRE) == 33
    snapshot = from_wire(parent.program, *sent(take_snapshot(parent)), shared)
    assert parent.call(Export.PRE) == 44
    child = start_from(snapshot)
    assert bytes(child.view[address : address + 21]) == SHARED[:21]
    assert [child.call(Export.PRE) for _ in range(2)] == [44, 55]
    assert fork(child)[0].call(Export.PRE) == 66
    child.close()


def test_snapshot_of_an_unchanged_guest_can_be_sent(make: Make, shared: tuple[int, int]) -> None:
    parent = make(COUNTER)
    wire, fd = sent(take_snapshot(parent))
    child = start_from(from_wire(parent.program, wire, fd, shared))
    assert child.call(Export.PRE) == 11
    child.close()


def test_snapshot_file_that_is_not_sealed_is_refused(make: Make, shared: tuple[int, int]) -> None:
    parent = make(COUNTER)
    parent.call(Export.PRE)
    wire, fd = sent(take_snapshot(parent))
    os.close(fd)
    before = open_files()
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, 1 << 20)
    with pytest.raises(RuntimeFailure, match="not sealed"):
        from_wire(parent.program, wire, loose, shared)
    small = sealed("small", 4096, [])
    with pytest.raises(RuntimeFailure, match="bytes"):
        from_wire(parent.program, wire, small, shared)
    assert open_files() == before, "refused files are closed"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 65536 * 5000, "size"),
        (0, 70000, "size"),
        (0, -65536, "size"),
        (1, b"", "globals"),
        (1, b"\5" + bytes(31), "globals"),
        (2, 0, "file"),
        (2, 1 << 40, "file"),
        (3, [4096, 0], "pages"),
        (3, [0, 4096, 0, 4096], "pages"),
        (3, [1, 4096], "pages"),
        (3, [1 << 40, 4096], "pages"),
        (3, [0], "invalid description"),
        (3, None, "invalid description"),
        (3, [b"%\x80", 4096], "types"),
        (2, b"%\x80", "types"),
        (0, 65536.0, "types"),
        (4, [b"%c"], "mappings"),
        (4, [[0, 5]], "mappings"),
        (4, [[1 << 40, len(SHARED)]], "mappings"),
        (4, [[5, len(SHARED)]], "mappings"),
        (4, [[0, len(SHARED)]] * 2, "mappings"),
        (4, [7], "invalid description"),
    ],
)
def test_invalid_descriptions_are_refused(
    make: Make, shared: tuple[int, int], place: int, value: Any, words: str
) -> None:
    parent = make(COUNTER)
    map_readonly(parent, *shared)
    parent.call(Export.PRE)
    wire, fd = sent(take_snapshot(parent))
    wire[place] = value
    with pytest.raises(ProtocolError, match=words):
        from_wire(parent.program, wire, fd, shared)


_ANYTHING = st.recursive(
    st.none() | st.integers(-5, 1 << 35) | st.binary(max_size=40) | st.floats(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


#: of the property test
EXAMPLES = cases(75, 300)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_descriptions_are_refused_or_stay_in_their_memory(
    make: Make, shared: tuple[int, int], data: st.DataObject
) -> None:
    """A description is refused, or gives a guest that stays in its own memory."""
    parent = make(COUNTER)
    map_readonly(parent, *shared)
    parent.call(Export.PRE)
    wire, fd = sent(take_snapshot(parent))
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, 4))
        if isinstance(wire[place], list) and wire[place] and data.draw(st.booleans()):
            inner = data.draw(st.integers(0, len(wire[place]) - 1))
            wire[place][inner] = data.draw(_ANYTHING | st.integers(0, 64).map(lambda n: n * 4096))
        else:
            wire[place] = data.draw(_ANYTHING | st.integers(0, 64).map(lambda n: n * 65536))
    try:
        child = start_from(from_wire(parent.program, wire, fd, shared))
    except AiciError:
        return
    assert child.size <= 5000 * 65536
    child.call(Export.PRE)
    child.close()
