"""The load of workers: which worker gets the next sequence, and which requests move."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure, WorkerDiedError

if TYPE_CHECKING:
    from aicirt.modules.store import ModuleStore
    from aicirt.supervisor.pool import WorkerPool
    from aicirt.supervisor.workers import WorkerProcess


#: a worker with a smaller busy share counts as idle: differences below it are noise
_IDLE_SHARE = 0.1
#: the share of a worker's time that a new sequence is expected to use, and for how many seconds it counts as
#: new: afterwards the share that the worker measures includes it
_NEW_SHARE, _NEW_SECONDS = 0.02, 2.0
#: added for every sequence: of equally busy workers, the one with fewer sequences has the lower score
_SEQUENCE_SHARE = 0.002


class Load:
    """The load of one worker: its last report, and the sequences placed there since."""

    __slots__ = ("_asked", "_missing", "_new", "_placed", "busy", "clients", "sequences")

    def __init__(self) -> None:
        #: share of its time, 0 to 1, that it spends on sequences, averaged over the last second or so
        self.busy = 0.0
        #: live sequences at the last report
        self.sequences = 0
        #: the same by number of the client
        self.clients: dict[int, int] = {}
        #: sequences placed here, and those of them that the worker has been asked to start
        self._placed = self._asked = 0
        self._missing = 0
        #: when the latest sequences were placed
        self._new: deque[float] = deque()

    def place(self) -> None:
        """Counts a sequence that will be started in the worker."""
        self._placed += 1
        self._new.append(time.monotonic())

    def moved_in(self, count: int) -> None:
        """Counts sequences that have moved to the worker."""
        self._new.extend([time.monotonic()] * count)

    def report(self, stats: Any) -> None:
        """Reads the worker's answer to a ping. Raises ProtocolError if the answer is invalid."""
        try:
            sequences, asked, busy = stats["sequences"], stats["asked"], stats["busy"]
            clients = {int(number): int(count) for number, count in stats["clients"].items()}
            sensible = isinstance(sequences, int) and isinstance(asked, int) and math.isfinite(busy)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"no answer to a ping: {error!r}") from None
        if not sensible:
            raise ProtocolError(f"no answer to a ping: {sequences!r}, {asked!r}, {busy!r}")
        self.sequences, self.clients, self.busy = sequences, clients, min(max(busy, 0.0), 1.0)
        missing = self._placed - asked
        if missing < 0 or (missing == self._missing and asked == self._asked):
            self._placed, missing = asked, 0  # the clients that were to start them have given up
        self._asked, self._missing = asked, missing

    @property
    def coming(self) -> int:
        """Sequences that have been placed but not started yet."""
        return max(0, self._placed - self._asked)

    @property
    def score(self) -> float:
        """The load for comparing workers: 0 is idle, 1 is fully busy; every sequence adds a little."""
        since = time.monotonic() - _NEW_SECONDS
        while self._new and self._new[0] < since:
            self._new.popleft()
        sequences = self.sequences + self.coming
        return max(0.0, self.busy - _IDLE_SHARE) + _NEW_SHARE * len(self._new) + _SEQUENCE_SHARE * sequences


#: a request moves away from a worker with at least this busy share, to one whose score is lower by at least
#: this difference: less is noise, and a move costs both workers a few milliseconds
_BUSY_SHARE, _DIFFERENCE = 0.6, 0.4


class Balance:
    """Compares workers whenever one of them has reported its load.

    Clients wait in `advise`. One client is advised at a time, since its move shows in the workers' reports
    only a second later.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[tuple[WorkerProcess, WorkerProcess]]] = {}

    async def advise(self, client: int) -> tuple[WorkerProcess, WorkerProcess]:
        """Waits until a worker with sequences of the client is much busier than another; returns both."""
        future: asyncio.Future[tuple[WorkerProcess, WorkerProcess]]
        future = self._waiting[client] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            if self._waiting.get(client) is future:
                del self._waiting[client]

    def look(self, pool: WorkerPool) -> None:
        """Compares the workers after one has reported its load, and advises at most one client."""
        for source in pool.workers:
            target = uneven(pool, source)
            if target is None:
                continue
            here = {client: count for client, count in source.load.clients.items() if client in self._waiting}
            if here:
                self._waiting.pop(max(here, key=here.__getitem__)).set_result((source, target))
                return


def uneven(pool: WorkerPool, source: WorkerProcess) -> WorkerProcess | None:
    """Returns the worker that a request of `source` should move to; None if `source` is not much busier.

    A worker's only sequence does not move: its load would only move with it.
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
    """Returns the least loaded of the other live workers that serve the same owner (or all owners).

    Raises WorkerDiedError if there is no such worker.
    """
    owner = pool.owner_of(source)
    others = [worker for worker in pool.workers if worker.alive and worker is not source]
    others = [worker for worker in others if pool.owner_of(worker) == owner]
    if not others:
        raise WorkerDiedError("there is no other worker that runs")
    return min(others, key=lambda worker: worker.load.score)


_numbers = itertools.count(1)


async def move(
    store: ModuleStore, client: int, seqs: list[int], source: WorkerProcess, target: WorkerProcess
) -> None:
    """Moves a request of a client to another worker. The client has attached to both workers.

    `seqs` lists all sequences of the request. The move takes effect with `commit` in the old worker, when the
    new worker has everything. An error before `commit` leaves the request in the old worker. Raises the
    reason: the request is busy, there is no room (SpaceError, OwnerLimitError), the client needed the request
    meanwhile, or a worker has ended (WorkerDiedError).
    """
    number = next(_numbers)
    which = {"client": client, "move": number}
    answer, files = await source.exchange("depart", {**which, "seqs": seqs})
    arrived = False
    try:
        module, nbytes = _read(answer)
        await store.get_async(module)
        there = {"client": client, "seqs": seqs, "module": module, "path": store.artifact_path(module).name}
        call = {**there, "state_bytes": nbytes, "files": len(files)}
        await target.call("arrive", call, fds=[file.fd for file in files])
        arrived = True
        if not await source.call("commit", which):
            raise RuntimeFailure("the request was needed where it is before it had moved")
    except Exception:  # not CancelledError: the client has gone, both workers drop its data
        with contextlib.suppress(AiciError):
            await source.call("stay", which)
        if arrived:
            with contextlib.suppress(AiciError):
                await target.call("discard", {"client": client, "seqs": seqs})
        raise
    target.load.moved_in(len(seqs))


def _read(answer: Any) -> tuple[str, int]:
    """Returns module and bytes. Checks only their types (ProtocolError): the new worker checks the rest."""
    if isinstance(answer, dict):
        module, nbytes = answer.get("module"), answer.get("state_bytes")
        if isinstance(module, str) and isinstance(nbytes, int):
            return module, nbytes
    raise ProtocolError("a worker has described a request in no known words")
