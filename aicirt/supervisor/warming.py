"""Has the idle builder fill the tables of templates: ahead of time, and with what sequences have found."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from aicirt.contract.abi import EXPORTS, Export
from aicirt.contract.errors import AiciError, SpaceError, WorkerDiedError
from aicirt.settings import LEARN_PART, MAX_LEARNING, RESPAWN_SECONDS, WARM_STAGES, WorkerSettings
from aicirt.supervisor.templates import Built, Templates
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.logs import fields

_log = logging.getLogger("aicirt.supervisor")
_WARM = EXPORTS[Export.WARM][0]


class _Job(NamedTuple):
    """A stage of a template, or what a sequence of this template has found. The smallest comes first."""

    stage: int
    arrival: int
    digest: bytes
    found: bytes = b""


class Warming:
    """Warms one template at a time, in stages.

    Owners take turns; the first stage of all templates of an owner comes before the second of any. What a
    sequence has found counts as a second stage.

    After each stage the builder's new snapshot replaces the template. A failure leaves the template as it is.
    """

    def __init__(
        self,
        templates: Templates,
        settings: WorkerSettings,
        builder: Callable[[str], WorkerProcess | None],
    ) -> None:
        """`builder` returns the process that runs `aici_init` for an owner; None if there is none yet."""
        self._templates = templates
        self._settings = settings
        self._builder = builder
        #: by owner, the next one first: a heap
        self._waiting: OrderedDict[str, list[_Job]] = OrderedDict()
        self._arrivals = itertools.count()
        self._task: asyncio.Task[None] | None = None
        #: modules whose first failure has been logged
        self._logged: set[str] = set()
        #: failures by error code
        self.failures: Counter[str] = Counter()
        templates.on_built = self._on_built

    def stop(self) -> None:
        """Stops warming; drops what is waiting."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _on_built(self, built: Built) -> None:
        if _WARM not in built.info.exports or not self._settings.warm_budget_ms:
            return
        self._push(built.owner, _Job(0, next(self._arrivals), built.digest))

    def learn(self, worker: WorkerProcess, answers: Sequence[tuple[int, bytes]]) -> None:
        """Queues what sequences of a worker have found, for the templates that they started from.

        Drops answers beyond a limit, and those of a worker that has served several owners: a guest that has
        broken out there could change the templates of all of them.
        """
        if len(worker.owners) > 1 or not self._settings.warm_budget_ms:
            return
        for number, found in answers:
            built = self._templates.adopted(worker, number)
            if built is not None and built.may_learn and _WARM in built.info.exports:
                self._add_found(built, found)

    def _add_found(self, built: Built, found: bytes) -> None:
        known = [job.digest for job in self._waiting.get(built.owner, ()) if job.found]
        if len(known) < MAX_LEARNING and built.digest not in known:
            self._push(built.owner, _Job(1, next(self._arrivals), built.digest, found))

    async def _run(self) -> None:
        while self._waiting:
            job = self._pop()
            built = self._templates.current(job.digest)
            if built is None or (built.warmth != job.stage and not job.found):
                continue  # evicted; if it was built again, the new one is waiting too
            while (builder := self._builder(built.owner)) is not None and not builder.alive:
                await asyncio.sleep(RESPAWN_SECONDS)
            if builder is None:
                continue  # the owner has gone
            try:
                more = await self._warm(builder, built, job)
            except AiciError as error:
                self._failed(built, error)
            else:
                if more and not job.found and job.stage + 1 < len(WARM_STAGES):
                    self._push(built.owner, job._replace(stage=job.stage + 1))

    def _push(self, owner: str, job: _Job) -> None:
        heapq.heappush(self._waiting.setdefault(owner, []), job)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _pop(self) -> _Job:
        owner, jobs = next(iter(self._waiting.items()))
        job = heapq.heappop(jobs)
        self._waiting.move_to_end(owner)
        if not jobs:
            del self._waiting[owner]
        return job

    async def _warm(self, builder: WorkerProcess, built: Built, job: _Job) -> bool:
        """Does a job; returns whether there is more to do.

        Raises the error of `aici_warm`, SpaceError if there is no room, and WorkerDiedError."""
        settings = self._settings
        before = WARM_STAGES[job.stage - 1] if job.stage else 0.0
        part = LEARN_PART if job.found else WARM_STAGES[job.stage] - before
        await self._templates.ensure_vocabulary(builder, built.vocabulary)
        answer, files = await builder.exchange(
            "warm",
            {
                **built.call,
                "budget_ms": part * settings.warm_budget_ms,
                "most_bytes": settings.warm_bytes - built.grown,
                "found": job.found,
            },
            fds=[file.fd for file in built.files],
        )
        nbytes = answer["nbytes"] + built.call["arg_bytes"]
        new = replace(
            built,
            call={**built.call, "built": answer},
            files=[built.files[0], *files[:1]],
            nbytes=nbytes,
            warmth=built.warmth if job.found else job.stage + 1,
            learned=built.learned + bool(job.found),
            grown=built.grown + nbytes - built.nbytes,
        )
        if not self._templates.replace(built, new):
            if self._templates.current(built.digest) is built:
                raise SpaceError(
                    "a template with more filled tables fits only if other templates are evicted"
                )
            return False
        more: bool = answer["more"]
        return more

    def _failed(self, built: Built, error: AiciError) -> None:
        """Logs a failure once per module, since no client waits for it.

        Logs only the code: the message may contain the user's text.
        """
        self.failures[error.code] += 1
        if isinstance(error, WorkerDiedError) or built.info.id in self._logged:
            return
        self._logged.add(built.info.id)
        about = fields(module=built.info.id, owner=built.owner, code=error.code)
        problem = "%s of module %s failed: %s; its templates stay unchanged"
        _log.warning(problem, _WARM, built.info.id, error.code, extra=about)
