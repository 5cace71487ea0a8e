"""Workers that serve one owner each: should a guest break out, it finds nothing of other owners there."""

from __future__ import annotations

import asyncio
import logging

from aicirt.config import WorkerConfig
from aicirt.errors import RuntimeFailure, SpaceError
from aicirt.logs import fields
from aicirt.supervisor.pool import WorkerPool
from aicirt.supervisor.workers import BUILDER, WorkerProcess

_log = logging.getLogger("aicirt.supervisor")
#: a client that was told of a worker starts its sequence there within so long
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 1.0


class TenantPool(WorkerPool):
    """A worker and a builder for each of at most so many owners; started when an owner first needs them,
    ended when they have been idle for some time, or sooner if another owner needs the place.

    What dies meanwhile is replaced, as in every pool.
    """

    def __init__(self, count: int, config: WorkerConfig) -> None:
        super().__init__(count, config)
        self._count = count
        self._idle_seconds = config.daemon.worker_idle_s
        #: owner -> index of the worker
        self._tenants: dict[str, int] = {}
        #: by index: loop time when it was last needed
        self._used: dict[int, float] = {}
        self._looking = self._loop.create_task(self._look())

    def place(self, owner: str = "") -> WorkerProcess:
        """The owner's worker, which is started if there is none.

        Raises SpaceError if all serve others, RuntimeFailure if no process can be started, WorkerDiedError.
        """
        worker = self._places[self._index(owner)]
        if not worker.alive:
            raise self._none_runs()
        worker.load.place()
        return worker

    def builder_for(self, owner: str) -> WorkerProcess:
        """The owner's builder; as `place`, but it may be a dead one."""
        return self._places[BUILDER - self._index(owner)]

    def present_builder(self, owner: str) -> WorkerProcess | None:
        """The same, if there is one."""
        index = self._tenants.get(owner)
        return None if index is None else self._places[BUILDER - index]

    def owner_of(self, process: WorkerProcess) -> str | None:
        """Whom a process serves."""
        index = process.index if process.index >= 0 else BUILDER - process.index
        return next((owner for owner, place in self._tenants.items() if place == index), None)

    async def stop(self) -> None:
        """Ends all."""
        self._looking.cancel()
        await super().stop()

    def _at_first(self, count: int) -> tuple[int, ...]:
        return ()

    def _index(self, owner: str) -> int:
        """The place of an owner, who has one from now on. Raises SpaceError, RuntimeFailure."""
        index = self._tenants.get(owner)
        if index is None:
            index = self._free_place()
            try:
                self._spawn(index)
                self._spawn(BUILDER - index)
            except RuntimeFailure:
                self._clear(index)
                raise
            self._tenants[owner] = index
            about = fields(worker=index, pid=self._places[index].pid, owner=owner)
            _log.info("worker %d serves an owner from now on", index, extra=about)
        self._used[index] = self._loop.time()
        return index

    def _free_place(self) -> int:
        taken = set(self._tenants.values())
        for index in range(self._count):
            if index not in taken:
                return index
        idle = {owner: place for owner, place in self._tenants.items() if self._idle(place) > _GRACE_SECONDS}
        if not idle:
            raise SpaceError(
                f"all {self._count} workers serve other owners: wait until one of them has been idle for "
                f"{_GRACE_SECONDS:g} s, or start aicirt with more workers (--workers)",
                limit=self._count,
            )
        owner = max(idle, key=lambda owner: self._idle(idle[owner]))
        self._end(owner, "for another one")
        return idle[owner]

    def _idle(self, index: int) -> float:
        """Seconds since a worker or its builder was last needed."""
        worker, builder = self._places[index], self._places[BUILDER - index]
        needed = worker.load.sequences or worker.load.coming if worker.alive else 0
        if needed or worker.asked or builder.asked:
            self._used[index] = self._loop.time()
        return self._loop.time() - self._used[index]

    def _end(self, owner: str, why: str) -> None:
        index = self._tenants.pop(owner)
        self.counters["workers_idle"] += 1
        _log.info(
            "worker %d serves an owner no more: %s", index, why, extra=fields(worker=index, owner=owner)
        )
        self._clear(index)

    def _clear(self, index: int) -> None:
        """Ends worker and builder at a place, and what was to replace them."""
        for number in (index, BUILDER - index):
            if attempt := self._attempts.pop(number, None):
                attempt.cancel()
            self._failures[number] = 0
            process = self._places.pop(number, None)
            if process is not None:
                process.end()
                for callback in self._on_death:
                    callback(process)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for owner, index in list(self._tenants.items()):
                if self._idle(index) > self._idle_seconds:
                    self._end(owner, "idle")
