from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.ipc import names
from aicirt.ipc.names import open_shared_memory
from aicirt.ipc.segment import Layout, RowPool, Segment
from aicirt.system.files import Descriptor

LAYOUT = Layout(1000, num_rows=4, num_dense=2, ring_bytes=4096)


SHM = Path("/dev/shm")


def shm_names(pid: int | None = None) -> list[Path]:
    return list(SHM.glob(f"*aici-{os.getuid()}-{pid or os.getpid()}-*"))


def opened(name: str, layout: Layout = LAYOUT) -> Segment:
    """Opens a segment as a worker does, from a descriptor."""
    file = Descriptor(open_shared_memory(name))
    return Segment.of_file(file.fd, layout)


def test_both_sides_share_memory_and_unlink_leaves_no_name() -> None:
    segment = Segment.create(LAYOUT)
    path = SHM / segment.name.lstrip("/")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_blocks * 512 >= LAYOUT.total, "the memory must be reserved"
    other = opened(segment.name)
    segment.unlink()
    assert not shm_names()
    assert segment.to_worker.try_write(b"hello")
    assert other.to_worker.read() == b"hello"
    other.close()
    segment.close()


def test_regions_do_not_overlap() -> None:
    edges = [LAYOUT.to_worker, LAYOUT.to_client, LAYOUT.generations, LAYOUT.rows, LAYOUT.dense, LAYOUT.total]
    assert edges == sorted(edges)
    assert LAYOUT.dense - LAYOUT.rows >= 4 * LAYOUT.mask_words * 4
    assert LAYOUT.total - LAYOUT.dense >= 2 * 1000 * 4


def test_segment_of_another_size_or_missing_is_refused() -> None:
    segment = Segment.create(LAYOUT)
    with pytest.raises(ProtocolError, match="bytes"):
        opened(segment.name, Layout(1000, num_rows=80, num_dense=2, ring_bytes=4096))
    segment.close()
    with pytest.raises(ProtocolError, match=r"/aici-.* does not exist"):
        opened(segment.name)


def test_lack_of_space_raises_an_error_instead_of_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces posix_fallocate, since filling the real /dev/shm would use up the machine's memory."""

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SpaceError, match=r"/dev/shm has no room for .* --shm-size"):
        Segment.create(LAYOUT)
    assert not shm_names()


def test_sweep_removes_segments_of_an_ended_process() -> None:
    pid = os.fork()
    if pid == 0:
        segment = Segment.create(LAYOUT)
        os._exit(0 if segment else 1)
    os.waitpid(pid, 0)
    assert shm_names(pid)
    assert any(f"-{pid}-" in name for name in names.sweep_orphans())
    assert not shm_names(pid)


@pytest.mark.parametrize("wire", [None, [1, 2, 3], [0, 4, 0, 4096], [10, 1, 0, 4096], [10, 4, 0, 100]])
def test_bad_layouts_are_refused(wire: object) -> None:
    with pytest.raises(ProtocolError):
        Layout.from_wire(wire)  # type: ignore[arg-type]


def test_row_is_allocated_until_it_is_given_back_once() -> None:
    pool = RowPool(memoryview(bytearray(LAYOUT.total)), LAYOUT, dense=False)
    rows = [pool.take() for _ in range(4)]
    assert len({row for row, _, _ in rows}) == 4
    assert all(generation % 2 for _, generation, _ in rows)
    with pytest.raises(SpaceError, match="4 mask rows"):
        pool.take()
    row, generation, _ = rows[0]
    with pytest.raises(ProtocolError):
        pool.give_back([row, generation + 2])
    pool.give_back([row, generation])
    with pytest.raises(ProtocolError, match="not in use"):
        pool.give_back([row, generation])
    again, newer, _ = pool.take()
    assert again == row and newer == generation + 2
    with pytest.raises(ProtocolError, match="no mask row"):
        pool.give_back([99, 1])
    with pytest.raises(ValueError, match="zip"):
        pool.give_back([again])


def test_sweep_removes_segments_of_a_zombie() -> None:
    """The parent may reap the zombie much later."""
    pid = os.fork()
    if pid == 0:
        segment = Segment.create(LAYOUT)
        os._exit(0 if segment else 1)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert shm_names(pid)
    assert any(f"-{pid}-" in name for name in names.sweep_orphans())
    os.waitpid(pid, 0)
