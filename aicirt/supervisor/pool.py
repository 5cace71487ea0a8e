"""The processes of a daemon: started, chosen for new sequences, replaced when they die."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from aicirt.config import WorkerConfig
from aicirt.errors import RuntimeFailure, WorkerDiedError
from aicirt.logs import fields
from aicirt.settings import RESPAWN_MAX_SECONDS, RESPAWN_SECONDS
from aicirt.supervisor.balance import Balance
from aicirt.supervisor.workers import BUILDER, WorkerProcess

_log = logging.getLogger("aicirt.supervisor")


class WorkerPool:
    """A fixed number of places, each with a worker, and a builder; the dead are replaced.

    The first time at once. Who dies again soon, or cannot be started, is started again after a pause that
    doubles each time; meanwhile the dead one keeps the place, and whoever calls it gets WorkerDiedError.
    """

    def __init__(self, count: int, config: WorkerConfig) -> None:
        """Raises RuntimeFailure if there is no room for so many processes."""
        self._config = config
        self._generation = 0
        self._watchers: set[asyncio.Task[None]] = set()
        self._on_death: list[Callable[[WorkerProcess], None]] = []
        self.balance = Balance()
        self._loop = asyncio.get_running_loop()
        #: by index: deaths and failures to start since a worker there last lived for long
        self._failures: Counter[int] = Counter()
        #: by index: the next attempts to start one
        self._attempts: dict[int, asyncio.TimerHandle] = {}
        #: what happened last
        self._problem = ""
        self.restarts = 0
        #: processes that were ended, by the reason
        self.counters: Counter[str] = Counter()
        self._places: dict[int, WorkerProcess] = {}
        try:
            for index in self._at_first(count):
                self._spawn(index)
        except RuntimeFailure:
            for worker in self.all:
                worker.end()
            raise

    @property
    def workers(self) -> list[WorkerProcess]:
        """By index; those that have died and could not be replaced yet are among them."""
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
        """Returns when all of them answer. Raises WorkerDiedError."""
        await asyncio.gather(*(worker.call("ping", {}) for worker in self.all))

    def on_death(self, callback: Callable[[WorkerProcess], None]) -> None:
        """`callback(dead)` is called when a process has died, before another is started."""
        self._on_death.append(callback)

    def builder_for(self, _owner: str) -> WorkerProcess:
        """The process that runs `aici_init` for an owner, started if there is none. Raises RuntimeFailure."""
        return self.builder

    def present_builder(self, _owner: str) -> WorkerProcess | None:
        """The same, None if it would have to be started."""
        return self.builder

    def owner_of(self, _process: WorkerProcess) -> str | None:
        """Whom a process serves; None: everybody."""
        return None

    def place(self, _owner: str = "") -> WorkerProcess:
        """The worker for a sequence of an owner: the one that has least to do, as measured, and one more now.

        Raises WorkerDiedError if none is running.
        """
        living = [worker for worker in self.workers if worker.alive]
        if not living:
            raise self._none_runs()
        worker = min(living, key=lambda w: w.load.score)
        worker.load.place()
        return worker

    def find(self, index: int, generation: int) -> WorkerProcess:
        """Raises WorkerDiedError if that very process is gone."""
        worker = self._places.get(index)
        if worker is None or worker.generation != generation or not worker.alive:
            raise WorkerDiedError(f"worker {index} of generation {generation} has ended")
        return worker

    async def stop(self) -> None:
        """Ends all workers."""
        for attempt in self._attempts.values():
            attempt.cancel()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(worker.stop() for worker in self.all))

    def _at_first(self, count: int) -> tuple[int, ...]:
        """What is started at once."""
        return (*range(count), BUILDER)

    def _none_runs(self) -> WorkerDiedError:
        """What is said while the dead wait to be replaced."""
        due = min(attempt.when() for attempt in self._attempts.values())
        return WorkerDiedError(
            f"no worker is running: {self._problem}; the next attempt to start one is in "
            f"{max(0.0, due - self._loop.time()):.1f} s"
        )

    def _spawn(self, index: int) -> None:
        self._generation += 1
        worker = WorkerProcess(index, self._generation, self._config, self._died)
        worker.on_report = partial(self.balance.look, self)
        self._places[index] = worker
        watcher = self._loop.create_task(worker.watch())
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    def _died(self, dead: WorkerProcess) -> None:
        _log.error("%s (pid %d) died", dead.name, dead.pid, extra=fields(worker=dead.index, pid=dead.pid))
        if dead.silent:
            self.counters["workers_silent"] += 1
        for callback in self._on_death:
            callback(dead)
        if self._loop.time() - dead.started > RESPAWN_MAX_SECONDS:
            self._failures[dead.index] = 0
        self._failed(dead.index, f"{dead.name} died")

    def _failed(self, index: int, problem: str) -> None:
        """There is no process at this place: starts one, now or later."""
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
