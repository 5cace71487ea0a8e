from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.ipc.segment import Layout, Segment, dense_rows_for, reserve
from aicirt.settings import WorkerSettings
from aicirt.worker.owners import Owner
from aicirt.worker.results import RowPool

LAYOUT = Layout(1000, num_rows=4, num_dense=2, ring_bytes=4096)


def file_of(segment: Segment) -> int:
    assert segment.file is not None
    return segment.file.fd


def test_both_sides_share_memory() -> None:
    segment = Segment.create(LAYOUT)
    assert os.fstat(file_of(segment)).st_blocks * 512 >= LAYOUT.dense, "the memory must be reserved"
    other = Segment.of_file(file_of(segment), LAYOUT)
    assert segment.to_worker.try_write(b"hello")
    assert other.to_worker.read() == b"hello"
    other.close()
    segment.close()


def test_dense_rows_take_memory_from_their_first_use_on() -> None:
    layout = Layout(100_000, num_rows=4, num_dense=256, ring_bytes=4096)
    segment = Segment.create(layout)

    def taken() -> int:
        return os.fstat(file_of(segment)).st_blocks * 512

    start = taken()
    assert start < layout.dense + layout.dense_bytes
    pool = RowPool(segment.memory, layout, dense=True)
    number, generation, _ = pool.take_row()
    used = taken()
    assert 0 < used - start < 2 * layout.dense_bytes
    pool.give_back([number, generation])
    pool.take_row()
    assert taken() == used, "a row that was used before is used again"
    pool.release()
    segment.close()


def test_a_kernel_that_reserves_no_parts_reserves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicirt.ipc.segment.LATE_ROWS", False)
    segment = Segment.create(LAYOUT)
    assert os.fstat(file_of(segment)).st_blocks * 512 >= LAYOUT.total
    reserve(segment.memory, LAYOUT.dense, LAYOUT.dense_bytes)
    segment.close()
    assert (dense_rows_for(10), dense_rows_for(1000)) == (10, 32)


def test_a_row_for_which_there_is_no_memory_stays_free(tmp_path: Path) -> None:
    """A file that is shorter than its mapping stands for memory that cannot be had."""
    layout = Layout(100_000, num_rows=2, num_dense=1, ring_bytes=4096)
    with (tmp_path / "short").open("w+b") as file:
        file.truncate(layout.total)
        memory = memoryview(mmap.mmap(file.fileno(), layout.total))
        file.truncate(layout.dense)
        pool = RowPool(memory, layout, dense=True)
        for _ in range(2):
            with pytest.raises(SpaceError, match=r"no memory is left for a row of 0\.4 MiB with biases"):
                pool.take_row()
        file.truncate(layout.total)
        assert pool.take_row()[:2] == (0, 1)


def test_regions_do_not_overlap() -> None:
    edges = [LAYOUT.to_worker, LAYOUT.to_client, LAYOUT.bell, LAYOUT.generations, LAYOUT.rows]
    edges += [LAYOUT.dense, LAYOUT.total]
    assert edges == sorted(edges)
    assert LAYOUT.dense - LAYOUT.rows >= 4 * LAYOUT.mask_words * 4
    assert LAYOUT.total - LAYOUT.dense >= 2 * 1000 * 4


def test_segment_of_another_size_is_refused() -> None:
    segment = Segment.create(LAYOUT)
    with pytest.raises(ProtocolError, match="bytes"):
        Segment.of_file(file_of(segment), Layout(1000, num_rows=80, num_dense=2, ring_bytes=4096))
    segment.close()


def test_neither_side_can_change_the_size_of_a_segment() -> None:
    """Access behind the end of a file that has been shrunk kills a process: the engine, or a worker."""
    segment = Segment.create(LAYOUT)
    for size in (0, LAYOUT.total - 1, LAYOUT.total + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(file_of(segment), size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(file_of(segment), fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    segment.close()


def memory_file(seals: int) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, LAYOUT.total)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def plain_file() -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(LAYOUT.total)
        return os.dup(file.fileno())


@pytest.mark.parametrize(
    "make",
    [
        plain_file,
        lambda: memory_file(0),
        lambda: memory_file(fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
        lambda: memory_file(fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
        lambda: memory_file(fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE),
        lambda: os.open("/dev/zero", os.O_RDWR),
    ],
)
def test_file_whose_size_could_change_is_refused(make: Callable[[], int]) -> None:
    fd = make()
    try:
        with pytest.raises(ProtocolError, match="not a memory file of a sealed size"):
            Segment.of_file(fd, LAYOUT)
    finally:
        os.close(fd)


def test_lack_of_space_raises_an_error_instead_of_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces posix_fallocate, since a real shortage would be one of the whole machine."""

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SpaceError, match=r"of shared memory: No space left.*; free memory, or"):
        Segment.create(LAYOUT)


@pytest.mark.parametrize("wire", [None, [1, 2, 3], [0, 4, 0, 4096], [10, 1, 0, 4096], [10, 4, 0, 100]])
def test_bad_layouts_are_refused(wire: object) -> None:
    with pytest.raises(ProtocolError):
        Layout.from_wire(wire)  # type: ignore[arg-type]


def test_row_is_allocated_until_it_is_given_back_once() -> None:
    pool = RowPool(memoryview(bytearray(LAYOUT.total)), LAYOUT, dense=False)
    first, second, third = (Owner("", WorkerSettings(), Counter(), set()) for _ in range(3))
    rows = [pool.take_row(owner) for owner in (first, first, second)]
    assert len({row for row, _, _ in rows}) == 3
    assert all(generation % 2 for _, generation, _ in rows)
    for owner in (first, second):
        with pytest.raises(SpaceError, match="no mask row is left for this owner"):
            pool.take_row(owner)
    pool.take_row()
    with pytest.raises(SpaceError, match=r"whose sequences have 1 \(the other 0 are"):
        pool.take_row()
    row, generation, _ = rows[0]
    with pytest.raises(ProtocolError):
        pool.give_back([row, generation + 2])
    pool.give_back([row, generation])
    with pytest.raises(ProtocolError, match="not in use"):
        pool.give_back([row, generation])
    again, newer, _ = pool.take_row(third)
    assert again == row and newer == generation + 2
    with pytest.raises(ProtocolError, match="no mask row"):
        pool.give_back([99, 1])
    with pytest.raises(ValueError, match="zip"):
        pool.give_back([again])
