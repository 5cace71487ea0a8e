"""Which worker is markedly busier than another, and which client is told so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aicirt.errors import WorkerDiedError

if TYPE_CHECKING:
    from aicirt.supervisor.pool import WorkerPool
    from aicirt.supervisor.workers import WorkerProcess

#: a request is worth moving from a worker that is busy for so much of its time, to one whose score is lower
#: by so much: less is noise, and a move costs both a few milliseconds
_BUSY_SHARE, _DIFFERENCE = 0.6, 0.4


class Balance:
    """Compares workers whenever one has told how busy it is.

    Clients that want to know wait in `advise`; one of them is told at a time, since what it then moves shows
    in what workers tell only a second later.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[tuple[WorkerProcess, WorkerProcess]]] = {}

    async def advise(self, client: int) -> tuple[WorkerProcess, WorkerProcess]:
        """Returns when the client has sequences in a worker that is much busier than another: both."""
        future: asyncio.Future[tuple[WorkerProcess, WorkerProcess]]
        future = self._waiting[client] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            if self._waiting.get(client) is future:
                del self._waiting[client]

    def look(self, pool: WorkerPool) -> None:
        """A worker has told how busy it is."""
        for source in pool.workers:
            target = uneven(pool, source)
            if target is None:
                continue
            here = {client: count for client, count in source.load.clients.items() if client in self._waiting}
            if here:
                self._waiting.pop(max(here, key=here.__getitem__)).set_result((source, target))
                return


def uneven(pool: WorkerPool, source: WorkerProcess) -> WorkerProcess | None:
    """The worker that a request should move to, if this one is much busier.

    A single sequence would only take its load along.
    """
    load = source.load
    if not source.alive or load.busy < _BUSY_SHARE or load.sequences < 2:
        return None
    try:
        target = other(pool, source)
    except WorkerDiedError:
        return None
    return target if load.score - target.load.score >= _DIFFERENCE else None


def other(pool: WorkerPool, source: WorkerProcess) -> WorkerProcess:
    """The worker that has least to do, of the others that serve the same owner, or everybody.

    Raises WorkerDiedError if there is none.
    """
    owner = pool.owner_of(source)
    others = [worker for worker in pool.workers if worker.alive and worker is not source]
    others = [worker for worker in others if pool.owner_of(worker) == owner]
    if not others:
        raise WorkerDiedError("there is no other worker that runs")
    return min(others, key=lambda worker: worker.load.score)
