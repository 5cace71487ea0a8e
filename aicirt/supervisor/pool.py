"""Worker pools: start processes, choose workers for new sequences, replace dead processes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from aicirt.contract.errors import RuntimeFailure, SpaceError, WorkerDiedError
from aicirt.settings import RESPAWN_MAX_SECONDS, RESPAWN_SECONDS, WorkerConfig
from aicirt.supervisor.workers import BUILDER, WorkerProcess
from aicirt.system.logs import fields
from aicirt.system.processes import Start

_log = logging.getLogger("aicirt.supervisor")

#: a worker that leaves a call unanswered for longer gets no sequences while another one answers. Usually an
#: answer takes milliseconds
SLOW_SECONDS = 0.5


class WorkerPool:
    """A fixed number of places, each with a worker, and a builder. Dead processes are replaced.

    The first replacement starts at once. A process that dies again soon, or cannot be started, is started
    after a pause that doubles each time. Meanwhile the dead process keeps its place; calls to it raise
    WorkerDiedError.
    """

    def __init__(self, count: int, config: WorkerConfig, start: Start) -> None:
        """Begins to start the processes. Raises RuntimeFailure if there is no room for so many."""
        self._config = config
        self._start = start
        self._generation = 0
        self._watchers: set[asyncio.Task[None]] = set()
        self._on_death: list[Callable[[WorkerProcess], None]] = []
        #: called with what sequences of a worker have found
        self.on_found: Callable[[WorkerProcess, Any], None] | None = None
        self.on_calls: Callable[[WorkerProcess, Any], None] | None = None
        self._loop = asyncio.get_running_loop()
        #: by index: deaths and failed starts since a process there last lived for long
        self._failures: Counter[int] = Counter()
        #: by index: the next attempt to start a process
        self._attempts: dict[int, asyncio.TimerHandle] = {}
        #: the latest failure, for error messages
        self._problem = ""
        self.restarts = 0
        #: processes that were ended, by reason
        self.counters: Counter[str] = Counter()
        self._places: dict[int, WorkerProcess] = {}
        self._stopping = False
        try:
            for index in self._at_first(count):
                self._spawn(index)
        except RuntimeFailure:
            for worker in self.all:
                worker.end()
            raise

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers by index, including dead ones that have not been replaced yet."""
        return [worker for index, worker in sorted(self._places.items()) if index >= 0]

    @property
    def builders(self) -> list[WorkerProcess]:
        """The processes that run `aici_init`."""
        return [process for index, process in sorted(self._places.items(), reverse=True) if index < 0]

    @property
    def builder(self) -> WorkerProcess:
        """The process that runs `aici_init`."""
        return self._places[BUILDER]

    @property
    def all(self) -> list[WorkerProcess]:
        """The workers and builders."""
        return list(self._places.values())

    async def ready(self) -> None:
        """Waits until all processes answer. Raises WorkerDiedError."""
        await asyncio.gather(*(worker.call("ping", {}) for worker in self.all))

    def on_death(self, callback: Callable[[WorkerProcess], None]) -> None:
        """Has `callback(dead)` called when a process has died, before another is started."""
        self._on_death.append(callback)

    def builder_for(self, _owner: str) -> WorkerProcess:
        """Returns the owner's builder, which is started if there is none. Raises RuntimeFailure."""
        return self.builder

    def present_builder(self, _owner: str) -> WorkerProcess | None:
        """Returns the owner's builder; None if it would have to be started."""
        return self.builder

    def owner_of(self, _process: WorkerProcess) -> str | None:
        """Returns the owner that a process serves; None = all owners."""
        return None

    def choose_worker(self, _owner: str = "") -> WorkerProcess:
        """Returns the worker for a new sequence of an owner, and counts the sequence.

        It is the least loaded one of those that answer. Raises WorkerDiedError if no worker is running.
        """
        living = [worker for worker in self.workers if worker.alive]
        if not living:
            raise self._none_runs()
        worker = min(living, key=lambda w: (w.owes(SLOW_SECONDS), w.load.score))
        worker.load.count_placement()
        return worker

    def find(self, index: int, generation: int) -> WorkerProcess:
        """Returns a worker. Raises WorkerDiedError if that process has ended, even if it was replaced."""
        worker = self._places.get(index)
        if worker is None or worker.generation != generation or not worker.alive:
            raise WorkerDiedError(f"worker {index} (generation {generation}) has ended")
        return worker

    async def stop_all(self) -> None:
        """Stops all processes."""
        self._stopping = True  # a process whose death is noticed from now on is not replaced
        for attempt in self._attempts.values():
            attempt.cancel()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(worker.stop() for worker in self.all))

    def _at_first(self, count: int) -> tuple[int, ...]:
        """Returns the places that are started at once."""
        return (*range(count), BUILDER)

    def _none_runs(self) -> WorkerDiedError:
        """Returns the error for calls while no worker runs."""
        due = min(attempt.when() for attempt in self._attempts.values())
        return WorkerDiedError(
            f"no worker is running: {self._problem}; the next attempt to start one is in "
            f"{max(0.0, due - self._loop.time()):.1f} s"
        )

    def _spawn(self, index: int) -> None:
        self._generation += 1
        worker = WorkerProcess(index, self._generation, self._config, self._start, self._died, self._found)
        self._places[index] = worker
        for watching in (worker.watch(), *([worker.listen(self._called)] if index >= 0 else [])):
            watcher = self._loop.create_task(watching)
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)

    def _found(self, worker: WorkerProcess, found: Any) -> None:
        if self.on_found is not None:
            self.on_found(worker, found)

    def _called(self, worker: WorkerProcess, news: Any) -> None:
        if self.on_calls is not None:
            self.on_calls(worker, news)

    def _died(self, dead: WorkerProcess) -> None:
        if self._stopping:
            return
        if not dead.problem:
            _log.error("%s (pid %d) died", dead.name, dead.pid, extra=fields(worker=dead.index, pid=dead.pid))
        if dead.silent:
            self.counters["workers_silent"] += 1
        for callback in self._on_death:
            callback(dead)
        if self._loop.time() - dead.started > RESPAWN_MAX_SECONDS:
            self._failures[dead.index] = 0
        self._failed(dead.index, dead.problem or f"{dead.name} died")

    def _failed(self, index: int, problem: str) -> None:
        """Starts a process at a place that has none: at once after one failure, later after more."""
        self._problem = problem
        self._failures[index] += 1
        earlier = self._failures[index] - 1
        if not earlier:
            self._try(index)
            return
        pause = min(RESPAWN_SECONDS * 2 ** min(earlier - 1, 30), RESPAWN_MAX_SECONDS)
        about = fields(worker=index)
        _log.warning("%s; the next attempt to start one is in %.1f s", problem, pause, extra=about)
        self._attempts[index] = self._loop.call_later(pause, self._try, index)

    def _try(self, index: int) -> None:
        self._attempts.pop(index, None)
        try:
            self._spawn(index)
        except RuntimeFailure as error:
            self._failed(index, error.message)
        else:
            self.restarts += 1


#: a client that has received a worker's address starts its sequence there within this time, in seconds of the
#: reference machine
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 1.0


class TenantPool(WorkerPool):
    """A worker and a builder for each owner, for a limited number of owners.

    They are started when the owner first needs them. They are ended when they have been idle for some time,
    or sooner if another owner needs the place. Dead processes are replaced, as in every pool.
    """

    def __init__(self, count: int, config: WorkerConfig, start: Start) -> None:
        super().__init__(count, config, start)
        self._count = count
        self._idle_seconds = config.daemon.worker_idle_s
        self._grace = _GRACE_SECONDS * config.pace
        #: owner -> index of the worker
        self._tenants: dict[str, int] = {}
        #: by index: loop time when the place was last needed
        self._used: dict[int, float] = {}
        self._looking = self._loop.create_task(self._look())

    def choose_worker(self, owner: str = "") -> WorkerProcess:
        """Returns the owner's worker, which is started if there is none.

        Raises SpaceError if all places serve other owners, RuntimeFailure if no process can be started, and
        WorkerDiedError if the worker is dead.
        """
        worker = self._places[self._index(owner)]
        if not worker.alive:
            raise self._none_runs()
        worker.load.count_placement()
        return worker

    def builder_for(self, owner: str) -> WorkerProcess:
        """Returns the owner's builder; as `choose_worker`, but the builder may be dead."""
        return self._places[BUILDER - self._index(owner)]

    def present_builder(self, owner: str) -> WorkerProcess | None:
        """Returns the owner's builder, if there is one."""
        index = self._tenants.get(owner)
        return None if index is None else self._places[BUILDER - index]

    def owner_of(self, process: WorkerProcess) -> str | None:
        """Returns the owner that a process serves."""
        index = process.index if process.index >= 0 else BUILDER - process.index
        return next((owner for owner, place in self._tenants.items() if place == index), None)

    async def stop_all(self) -> None:
        """Stops all processes."""
        self._looking.cancel()
        await super().stop_all()

    def _at_first(self, count: int) -> tuple[int, ...]:
        return ()

    def _index(self, owner: str) -> int:
        """Returns the owner's place, assigned if there is none. Raises SpaceError, RuntimeFailure."""
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
            _log.info("worker %d was assigned to an owner", index, extra=fields(worker=index, owner=owner))
        self._used[index] = self._loop.time()
        return index

    def _free_place(self) -> int:
        taken = set(self._tenants.values())
        for index in range(self._count):
            if index not in taken:
                return index
        idle = {owner: place for owner, place in self._tenants.items() if self._idle(place) > self._grace}
        if not idle:
            raise SpaceError(
                f"all {self._count} workers serve other owners: wait until a worker has been idle for "
                f"{self._grace:g} s, or start aicirt with more workers (--workers)",
                limit=self._count,
            )
        owner = max(idle, key=lambda owner: self._idle(idle[owner]))
        self._end(owner, "another owner needs a worker")
        return idle[owner]

    def _idle(self, index: int) -> float:
        """Returns the seconds since a worker or its builder was last needed."""
        worker, builder = self._places[index], self._places[BUILDER - index]
        needed = worker.load.sequences or worker.load.coming if worker.alive else 0
        if needed or worker.asked or builder.asked:
            self._used[index] = self._loop.time()
        return self._loop.time() - self._used[index]

    def _end(self, owner: str, why: str) -> None:
        index = self._tenants.pop(owner)
        self.counters["workers_idle"] += 1
        _log.info("worker %d of an owner is ended: %s", index, why, extra=fields(worker=index, owner=owner))
        self._clear(index)

    def _clear(self, index: int) -> None:
        """Ends the worker and builder at a place, and cancels attempts to replace them."""
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
