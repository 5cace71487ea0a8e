"""Memoised `aici_init`: the snapshot that every sequence of a (module, argument) starts from."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.errors import AiciError, ArgumentError, ControllerFailed, RuntimeFailure
from aicirt.settings import RequestLimits, WorkerSettings
from aicirt.wasm.abi import Export
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit
from aicirt.wasm.instance import Instance
from aicirt.worker.context import GuestContext
from aicirt.worker.sequence import check_arg
from aicirt.worker.work import Work

if TYPE_CHECKING:
    from aicirt.wasm.program import Program
    from aicirt.wasm.snapshot import Snapshot
    from aicirt.worker.vocabulary import LoadedVocabulary
    from aicirt.worker.work import Agenda


@dataclass(slots=True)
class Template:
    """A snapshot taken right after `aici_init`, before any prompt."""

    number: int
    snapshot: Snapshot
    arg: bytes
    arg_address: int
    vocabulary: LoadedVocabulary
    #: what aici_init printed: every sequence's log begins with it
    log: bytes


class Templates:
    """All templates of this worker, the least recently used given up beyond a number or their bytes."""

    def __init__(self, agenda: Agenda, limits: RequestLimits, settings: WorkerSettings) -> None:
        self._agenda = agenda
        self._limits = limits
        self._settings = settings
        self._bytes = 0
        self._numbers = itertools.count(1)
        self._templates: OrderedDict[int, Template] = OrderedDict()

    def get(self, number: int) -> Template:
        """Raises RuntimeFailure if it has been given up."""
        try:
            template = self._templates[number]
        except KeyError:
            raise RuntimeFailure(f"template {number} has been given up for others", gone=number) from None
        self._templates.move_to_end(number)
        return template

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return self._bytes

    def make(
        self,
        program: Program,
        arg: bytes,
        vocabulary: LoadedVocabulary,
        capabilities: dict[int, int],
        done: Callable[[Template | AiciError], None],
    ) -> None:
        """Runs `aici_init` in a fresh instance; calls `done` when it has ended.

        Raises what instantiation ends with (a trap or time limit in a start function).
        """
        context = GuestContext(
            vocabulary=vocabulary,
            capabilities=capabilities,
            limits=self._limits,
            arg=arg,
            variables=None,
            seed=0,
        )
        instance = Instance(program)
        instance.owner = context
        instance.log = context.write_log
        try:
            instance.start()
            address = instance.call(Export.ARG)
            check_arg(instance, address)
            if not program.has[Export.INIT]:
                done(self._finish(instance, context, address, arg))
                instance.close()
                return
        except (AiciError, GuestExit):
            instance.close()
            raise

        def ended(value: int | None, error: Exception | None) -> None:
            try:
                problem = _problem(value, error)
                if problem is None:
                    done(self._finish(instance, context, address, arg))
                else:
                    if context.log.waiting:
                        problem.detail.setdefault("log", context.log.take())
                    done(problem)
            except AiciError as failure:
                done(failure)
            finally:
                instance.close()

        fiber = Fiber(instance, Export.INIT, (len(arg),))
        self._agenda.start(Work(fiber, ended))

    def _finish(self, instance: Instance, context: GuestContext, address: int, arg: bytes) -> Template:
        snapshot = instance.snapshot()
        log = context.log.take().encode()
        template = Template(next(self._numbers), snapshot, arg, address, context.vocabulary, log)
        self._templates[template.number] = template
        self._bytes += snapshot.nbytes
        while self._too_much():
            _, old = self._templates.popitem(last=False)
            self._bytes -= old.snapshot.nbytes
        return template

    def _too_much(self) -> bool:
        number, settings = len(self._templates), self._settings
        return number > settings.max_templates or (number > 1 and self._bytes > settings.snapshot_bytes)


def _problem(value: int | None, error: Exception | None) -> AiciError | None:
    """What aici_init failed with, as the user shall see it."""
    if error is None:
        return (
            None
            if value == 0
            else ArgumentError(f"the controller refused its argument (aici_init returned {value})")
        )
    if isinstance(error, ControllerFailed):
        return ArgumentError(error.message, **error.detail)
    if isinstance(error, GuestExit):
        return ArgumentError(f"the controller stopped in aici_init ({error.reason})")
    return error if isinstance(error, AiciError) else RuntimeFailure(f"aici_init failed: {error!r}")
