from __future__ import annotations

from aicirt.settings import MIN_WORKER_MEMORY, WorkerSettings, share_memory

GIB = 1 << 30


def test_memory_limits_are_shares_of_the_free_memory() -> None:
    found = share_memory(WorkerSettings(), processes=3, free=8 * GIB)
    assert (found.worker_memory_bytes, found.owner_memory_bytes) == (GIB, GIB // 2)
    assert found.snapshot_bytes == WorkerSettings().snapshot_bytes


def test_snapshot_limit_is_at_most_the_worker_memory_limit() -> None:
    found = share_memory(WorkerSettings(), processes=2, free=GIB // 2)
    assert found.worker_memory_bytes == found.snapshot_bytes == GIB // 12
    assert found.owner_snapshot_bytes < found.snapshot_bytes
    assert share_memory(WorkerSettings(), processes=2, free=0).worker_memory_bytes == MIN_WORKER_MEMORY


def test_limits_set_explicitly_stay() -> None:
    settings = WorkerSettings(worker_memory_bytes=100, snapshot_bytes=GIB)
    found = share_memory(settings, processes=3, free=0)
    assert (found.worker_memory_bytes, found.owner_memory_bytes) == (100, 50)
    assert found.snapshot_bytes == GIB
    assert share_memory(WorkerSettings(owner_memory_bytes=7), 3, GIB).owner_memory_bytes == 7
