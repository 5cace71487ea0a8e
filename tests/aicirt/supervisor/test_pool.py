"""Workers that die, and workers that cannot be started."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import RuntimeFailure, WorkerDiedError
from aicirt.settings import WorkerConfig
from aicirt.supervisor.pool import WorkerPool
from aicirt.supervisor.workers import WorkerProcess

#: starting a worker takes half a second of an idle machine
PATIENCE = 60.0


def run(test: Callable[[WorkerPool], Awaitable[None]], count: int = 1) -> None:
    async def main() -> None:
        pool = WorkerPool(count, WorkerConfig())
        try:
            await asyncio.gather(*(process.call("ping", {}) for process in pool.all))
            await test(pool)
        finally:
            await pool.stop()

    asyncio.run(main())
    assert not list(Path("/dev/shm").glob(f"*aici-{os.getuid()}-{os.getpid()}-*"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def kill(worker: WorkerProcess) -> None:
    worker.kill()
    await until(lambda: not worker.alive)


def test_worker_that_dies_as_the_pool_stops_is_not_replaced() -> None:
    async def test(pool: WorkerPool) -> None:
        (worker,) = pool.workers
        worker.kill()
        select.select([worker._pidfd], [], [], PATIENCE)
        # the event loop notices the death after `stop` has been called and before it has reached the worker
        asyncio.get_running_loop().call_soon(worker._died)
        await pool.stop()
        assert pool.workers == [worker] and pool.restarts == 0

    run(test)


def test_first_death_of_a_worker_is_followed_by_an_immediate_restart() -> None:
    async def test(pool: WorkerPool) -> None:
        deaths: list[WorkerProcess] = []
        pool.on_death(deaths.append)
        first, other = pool.workers
        await kill(first)
        assert deaths == [first] and pool.restarts == 1
        assert [w.index for w in pool.workers] == [0, 1] and pool.workers[1] is other
        successor = pool.workers[0]
        assert successor.alive and successor.generation > first.generation
        assert pool.find(0, successor.generation) is successor
        with pytest.raises(WorkerDiedError):
            pool.find(0, first.generation)
        assert (await successor.call("ping", {}))["sequences"] == 0

    run(test, 2)


def test_workers_that_die_at_once_are_restarted_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(pool: WorkerPool) -> None:
        (worker,) = pool.workers
        with monkeypatch.context() as broken:
            broken.setattr("sys.executable", "/bin/false")
            await kill(worker)
            await asyncio.sleep(2)
            assert 2 <= pool.restarts <= 6, "after pauses of 0, 0.1, 0.2, 0.4, 0.8 and 1.6 s"
            await until(lambda: not pool.workers[0].alive)
            with pytest.raises(WorkerDiedError, match=r"no worker is running: worker 0 died; .* is in \d"):
                pool.place()
            with pytest.raises(WorkerDiedError, match="has ended"):
                await pool.workers[0].call("ping", {})
        await until(lambda: pool.workers[0].alive)
        assert (await pool.place().call("ping", {}))["sequences"] == 0

    run(test)


def fail_to_start(monkeypatch: pytest.MonkeyPatch, attempts: list[int]) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        attempts.append(1)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", no_room)


def test_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(pool: WorkerPool) -> None:
        first, second = pool.workers
        attempts: list[int] = []
        before = len(list(Path("/proc/self/fd").iterdir()))
        with monkeypatch.context() as patched:
            fail_to_start(patched, attempts)
            await kill(first)
            assert [pool.place() for _ in range(3)] == [second] * 3, "the other worker serves all"
            await kill(second)
            with pytest.raises(WorkerDiedError, match=r"no worker is running: worker \d cannot be started: "):
                pool.place()
            await until(lambda: len(attempts) >= 6)
            assert len(list(Path("/proc/self/fd").iterdir())) <= before, "failed attempts leave nothing"
        await until(lambda: all(worker.alive for worker in pool.workers))
        assert (await pool.place().call("ping", {}))["sequences"] == 0

    run(test, 2)


def test_a_builder_that_dies_is_replaced() -> None:
    async def test(pool: WorkerPool) -> None:
        dead = pool.builder
        await kill(dead)
        assert pool.builder is not dead and "builder" not in (await pool.builder.call("ping", {}))
        with pytest.raises(WorkerDiedError, match="the builder"):
            await dead.call("ping", {})

    run(test)


def test_pool_that_cannot_start_all_workers_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def two_fit(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        if len(started) == 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", two_fit)

    async def main() -> None:
        with pytest.raises(RuntimeFailure, match="worker 2 cannot be started"):
            WorkerPool(3, WorkerConfig())

    asyncio.run(main())
    assert [process.returncode for process in started] == [-9, -9]
    assert not list(Path("/dev/shm").glob(f"*aici-{os.getuid()}-{os.getpid()}-*"))
