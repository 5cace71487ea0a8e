"""Has the builder fill the tables of templates ahead of time, while it is idle."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace

from aicirt.contract.abi import EXPORTS, Export
from aicirt.contract.errors import AiciError, SpaceError, WorkerDiedError
from aicirt.settings import RESPAWN_SECONDS, WARM_STAGES, WorkerSettings
from aicirt.supervisor.templates import Built, Templates, snapshot_bytes
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.logs import fields

_log = logging.getLogger("aicirt.supervisor")
_WARM = EXPORTS[Export.WARM][0]


class Warming:
    """Warms one template at a time, in stages.

    Owners take turns; the first stage of all templates of an owner comes before the second of any.

    After each stage the builder's new snapshot replaces the template. A failure leaves the template as it is.
    """

    def __init__(
        self, templates: Templates, settings: WorkerSettings, builder: Callable[[str], WorkerProcess | None]
    ) -> None:
        """`builder` returns the process that runs `aici_init` for an owner; None if there is none yet."""
        self._templates = templates
        self._settings = settings
        self._builder = builder
        #: by owner, the next one first: heap of (stage, number of arrival, template, its initial bytes)
        self._waiting: OrderedDict[str, list[tuple[int, int, bytes, int]]] = OrderedDict()
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
        self._push(built.owner, (0, next(self._arrivals), built.digest, built.nbytes))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            stage, arrival, digest, nbytes = self._pop()
            built = self._templates.current(digest)
            if built is None or built.warmth != stage:
                continue  # evicted; if it was built again, the new one is waiting too
            while (builder := self._builder(built.owner)) is not None and not builder.alive:
                await asyncio.sleep(RESPAWN_SECONDS)
            if builder is None:
                continue  # the owner has gone
            try:
                more = await self._warm(builder, built, stage, nbytes)
            except AiciError as error:
                self._failed(built, error)
            else:
                if more and stage + 1 < len(WARM_STAGES):
                    self._push(built.owner, (stage + 1, arrival, digest, nbytes))

    def _push(self, owner: str, entry: tuple[int, int, bytes, int]) -> None:
        heapq.heappush(self._waiting.setdefault(owner, []), entry)

    def _pop(self) -> tuple[int, int, bytes, int]:
        owner, entries = next(iter(self._waiting.items()))
        entry = heapq.heappop(entries)
        self._waiting.move_to_end(owner)
        if not entries:
            del self._waiting[owner]
        return entry

    async def _warm(self, builder: WorkerProcess, built: Built, stage: int, nbytes: int) -> bool:
        """Warms a template for one stage; returns whether there is more to do.

        Raises the error of `aici_warm`, SpaceError if there is no room, and WorkerDiedError."""
        settings = self._settings
        before = WARM_STAGES[stage - 1] if stage else 0.0
        await self._templates.ensure_vocabulary(builder, built.vocabulary)
        answer, files = await builder.exchange(
            "warm",
            {
                **built.call,
                "budget_ms": (WARM_STAGES[stage] - before) * settings.warm_budget_ms,
                "most_bytes": settings.warm_bytes - (built.nbytes - nbytes),
            },
            fds=[file.fd for file in built.files],
        )
        size = snapshot_bytes(answer)
        new = replace(
            built,
            call={**built.call, "built": answer},
            files=[built.files[0], *files[:1]],
            nbytes=size + built.call["arg_bytes"],
            warmth=stage + 1,
        )
        if not self._templates.replace(built, new):
            if self._templates.current(built.digest) is built:
                raise SpaceError(
                    "a template with more filled tables fits only if other templates are evicted"
                )
            return False
        return answer.get("more") is True

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
