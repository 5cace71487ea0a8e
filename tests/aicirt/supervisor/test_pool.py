"""Workers that die, and workers that cannot be started."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from aicirt.contract.errors import RuntimeFailure, SpaceError, WorkerDiedError
from aicirt.ipc.ring import Doorbell
from aicirt.settings import WorkerConfig
from aicirt.supervisor.fork_server import ForkServer
from aicirt.supervisor.pool import SLOW_SECONDS, WorkerPool
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.processes import Child, Start
from lab.system.processes import family, open_files


def run(test: Callable[[WorkerPool], Awaitable[None]], count: int = 1) -> None:
    async def main() -> None:
        with closing(ForkServer()) as fork_server:
            pool = WorkerPool(count, WorkerConfig(), fork_server.start)
            try:
                await pool.ready()
                await test(pool)
            finally:
                await pool.stop_all()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def kill(worker: WorkerProcess) -> None:
    worker.kill()
    await until(lambda: not worker.alive)


def test_worker_that_dies_as_the_pool_stops_is_not_replaced() -> None:
    async def test(pool: WorkerPool) -> None:
        (worker,) = pool.workers
        worker.kill()
        select.select([worker._child.pidfd.fd], [], [])
        # the event loop notices the death after `stop` has been called and before it has reached the worker
        asyncio.get_running_loop().call_soon(worker._died)
        await pool.stop_all()
        assert pool.workers == [worker] and pool.restarts == 0

    run(test)


def test_worker_that_does_not_answer_gets_no_sequences_while_another_does() -> None:
    async def test(pool: WorkerPool) -> None:
        stopped, other = pool.workers
        os.kill(stopped.pid, signal.SIGSTOP)
        await until(lambda: stopped.owes(SLOW_SECONDS))  # a ping
        assert {pool.choose_worker() for _ in range(4)} == {other}
        os.kill(other.pid, signal.SIGSTOP)
        await until(lambda: other.owes(SLOW_SECONDS))
        assert {pool.choose_worker() for _ in range(8)} == {stopped, other}, "then the load decides"
        for worker in (stopped, other):
            os.kill(worker.pid, signal.SIGCONT)
        await until(lambda: not stopped.owes(SLOW_SECONDS))

    run(test, 2)


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
            broken.setattr(pool, "_config", replace(WorkerConfig(), code="/does/not/exist"))
            await kill(worker)
            await asyncio.sleep(2)
            assert pool.restarts <= 6, "after pauses of 0, 0.1, 0.2, 0.4, 0.8 and 1.6 s"
            await until(lambda: pool.restarts >= 2)
            await until(lambda: not pool.workers[0].alive)
            with pytest.raises(WorkerDiedError, match=r"no worker is running: worker 0 died; .* is in \d"):
                pool.choose_worker()
            with pytest.raises(WorkerDiedError, match="has ended"):
                await pool.workers[0].call("ping", {})
        await until(lambda: pool.workers[0].alive)
        assert (await pool.choose_worker().call("ping", {}))["sequences"] == 0

    run(test)


class NoRoom:
    """Stands in for a fork server that cannot fork: it counts the attempts."""

    def __init__(self) -> None:
        self.attempts = 0

    async def start(self, *_: Any) -> Child:
        self.attempts += 1
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(pool: WorkerPool) -> None:
        first, second = pool.workers
        no_room = NoRoom()
        before = open_files()
        with monkeypatch.context() as patched:
            patched.setattr(pool, "_start", no_room.start)
            await kill(first)
            assert [pool.choose_worker() for _ in range(3)] == [second] * 3, "the other worker serves all"
            await kill(second)
            with pytest.raises(WorkerDiedError, match=r"no worker is running: worker \d cannot be started: "):
                pool.choose_worker()
            await until(lambda: no_room.attempts >= 6)
            assert open_files() <= before, "failed attempts leave nothing"
        await until(lambda: all(worker.alive for worker in pool.workers))
        assert (await pool.choose_worker().call("ping", {}))["sequences"] == 0

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
    created: list[Doorbell] = []
    real = Doorbell.create

    def two_fit() -> Doorbell:
        if len(created) == 2:
            raise SpaceError("no room")
        created.append(real())
        return created[-1]

    monkeypatch.setattr(Doorbell, "create", two_fit)
    before = family(os.getpid()).keys()  # earlier tests may have left the process that forks programs

    async def main() -> None:
        with closing(ForkServer()) as fork_server:
            with pytest.raises(RuntimeFailure, match="worker 2 cannot be started"):
                WorkerPool(3, WorkerConfig(), fork_server.start)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert family(os.getpid()).keys() <= before


async def start_wrongly(*_: Any) -> Child:
    raise KeyError("a defect")


@pytest.mark.parametrize(
    ("start", "words"), [(NoRoom().start, ".*ulimit -u"), (start_wrongly, r"KeyError\('a defect'\)")]
)
def test_worker_that_cannot_be_forked_at_first_is_reported_when_the_pool_gets_ready(
    start: Start, words: str
) -> None:
    async def main() -> None:
        pool = WorkerPool(1, WorkerConfig(), start)
        with pytest.raises(WorkerDiedError, match=f"cannot be started: {words}"):
            await pool.ready()
        await pool.stop_all()

    asyncio.run(main())
