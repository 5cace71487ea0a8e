"""Fills the tables of a template ahead of the requests that will start from it: calls `aici_warm`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from aicirt.errors import AiciError, ControllerFailed, RuntimeFailure, SpaceError
from aicirt.settings import RequestLimits
from aicirt.wasm.abi import Export
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit
from aicirt.wasm.instance import Instance
from aicirt.worker.context import GuestContext
from aicirt.worker.templates import Template

#: what `aici_warm` returns
_DONE, _MORE = 0, 1


@dataclass(frozen=True, slots=True)
class Warmed:
    """A template with more in its tables."""

    template: Template
    #: whether `aici_warm` would go on
    more: bool


class Warming:
    """Calls of `aici_warm` in an instance of a template, which has seen no prompt; for `Agenda.when_idle`.

    Ends when the guest is done, when `budget_ms` of CPU time are spent, or when half of `most_bytes` are:
    what the last call adds must fit into the other half.
    """

    def __init__(
        self,
        template: Template,
        capabilities: dict[int, int],
        limits: RequestLimits,
        budget_ms: float,
        most_bytes: int,
        done: Callable[[Warmed | AiciError], None],
    ) -> None:
        """`done` gets the new template, or why there is none; `template` stays as it is in any case.

        Raises RuntimeFailure if there is no room for an instance.
        """
        self.owner = template.owner
        self._template = template
        self._budget_ns = int(budget_ms * 1e6)
        self._most_bytes = most_bytes
        self._done = done
        self._spent_ns = 0
        self._over = False
        self.instance = instance = Instance.from_snapshot(template.snapshot)
        # what it prints is dropped: logs are the same whether a template is warm or not
        instance.owner = GuestContext(
            vocabulary=template.vocabulary,
            capabilities=capabilities,
            limits=limits,
            arg=template.arg,
            variables=None,
            seed=0,
        )
        self._fiber = Fiber(instance, Export.WARM)

    def run(self) -> bool:
        """Runs one slice; True if it was the last."""
        if self._over:
            return True
        begin = time.thread_time_ns()
        try:
            if not self._fiber.poll():
                self._spent_ns += time.thread_time_ns() - begin
                return False
            self._spent_ns += time.thread_time_ns() - begin
            more = _more(self._fiber.result) and self.instance.grown_bytes() < self._most_bytes // 2
            if more and self._spent_ns < self._budget_ns:
                self._fiber = Fiber(self.instance, Export.WARM)
                return False
            outcome: Warmed | AiciError = Warmed(self._take(), more)
        except Exception as error:
            outcome = _problem(error)
        self._end(outcome)
        return True

    def fail(self, error: AiciError) -> None:
        """Ends it with an error that is not its own."""
        if not self._over:
            self._end(error)

    def _end(self, outcome: Warmed | AiciError) -> None:
        self._over = True
        self.instance.close()
        self._done(outcome)

    def _take(self) -> Template:
        grown = self.instance.grown_bytes()
        if grown > self._most_bytes:
            raise SpaceError(
                f"aici_warm made the snapshot {grown} bytes larger, the limit is {self._most_bytes}",
                limit=self._most_bytes,
            )
        return dataclasses.replace(self._template, snapshot=self.instance.snapshot(), number=0)


def _more(result: int) -> bool:
    if result not in (_DONE, _MORE):
        raise ControllerFailed(f"aici_warm returned {result}; 1 is more to do, 0 is done")
    return result == _MORE


def _problem(error: Exception) -> AiciError:
    if isinstance(error, AiciError):
        return error
    if isinstance(error, GuestExit):
        return ControllerFailed(f"the controller stopped in aici_warm ({error.reason})")
    return RuntimeFailure(f"aici_warm failed: {error!r}")
