"""Runs `aici_init` and takes the snapshot that every sequence of a (module, argument) starts from."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from aicirt.errors import AiciError, ArgumentError, ControllerFailed, RuntimeFailure
from aicirt.settings import RequestLimits
from aicirt.wasm.abi import Export
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit
from aicirt.wasm.instance import Instance
from aicirt.worker.context import GuestContext
from aicirt.worker.sequence import check_arg
from aicirt.worker.templates import Template

if TYPE_CHECKING:
    from aicirt.wasm.program import Program
    from aicirt.worker.memory import GuestMemory
    from aicirt.worker.vocabulary import LoadedVocabulary

_log = logging.getLogger("aicirt.worker")


class Build:
    """The calls that make a template: the start function, `_initialize`, `aici_arg` and `aici_init`.

    Everything runs in slices, as a task of the agenda: loading the program and making the instance is the
    first, then each call is a fiber with the limit `init_ms`.
    """

    def __init__(
        self,
        owner: str,
        memory: GuestMemory,
        limits: RequestLimits,
        load: Callable[[], Program],
        arg: bytes,
        vocabulary: LoadedVocabulary,
        capabilities: dict[int, int],
        done: Callable[[Template | AiciError], None],
    ) -> None:
        """`load` returns the module's program. `done` gets the template, or what the calls failed with."""
        self.owner = owner
        self._memory = memory
        #: CPU time of all slices so far
        self.used_ns = 0
        self._load = load
        self._arg = arg
        self._done = done
        self._context = GuestContext(
            vocabulary=vocabulary, capabilities=capabilities, limits=limits, arg=arg, variables=None, seed=0
        )
        self._instance: Instance | None = None
        self._slices = self._run()
        self._ended = False

    def run(self) -> bool:
        """Runs one slice; True if it was the last."""
        if self._ended:
            return True
        begin = time.thread_time_ns()
        outcome: Template | AiciError
        try:
            next(self._slices)
        except StopIteration as end:
            outcome = end.value
        except GuestExit as error:
            outcome = ControllerFailed(f"the controller stopped before aici_init ({error.reason})")
        except AiciError as error:
            outcome = error
        except Exception as error:
            _log.exception("building a template failed")
            outcome = RuntimeFailure(f"building a template failed: {error!r}")
        else:
            self.used_ns += time.thread_time_ns() - begin
            return False
        self.used_ns += time.thread_time_ns() - begin
        if not self._ended:  # its snapshot may have been more than the owner may have
            self._end(outcome)
        return True

    def cancel(self) -> None:
        """Ends the work: `done` gets an error at once."""
        self.fail(RuntimeFailure("nobody waits for this argument any more"))

    def fail(self, error: AiciError) -> None:
        """Ends the work with an error that is not its own."""
        if not self._ended:
            self._end(error)

    def _end(self, outcome: Template | AiciError) -> None:
        self._ended = True
        if isinstance(outcome, AiciError) and self._context.log.waiting:
            outcome.detail.setdefault("log", self._context.log.take())
        if self._instance is not None:
            self._instance.close()
        self._done(outcome)

    def _run(self) -> Generator[None, None, Template]:
        """Yields between slices; returns the template."""
        program = self._load()
        self._instance = instance = Instance(program)
        instance.owner = self._context
        instance.log = self._context.write_log
        self._memory.watch(instance, self.owner, self.fail)
        yield
        for export in (Export.START, Export.INITIALIZE):
            if program.has[export]:
                yield from _call(instance, export)
        address = yield from _call(instance, Export.ARG)
        check_arg(instance, address)
        if program.has[Export.INIT]:
            try:
                value = yield from _call(instance, Export.INIT, len(self._arg))
            except ControllerFailed as error:
                raise ArgumentError(error.message, **error.detail) from None
            except GuestExit as error:
                raise ArgumentError(f"the controller stopped in aici_init ({error.reason})") from None
            if value:
                raise ArgumentError(f"the controller refused its argument (aici_init returned {value})")
        yield  # a snapshot takes some milliseconds of a large memory
        self._memory.check(self.owner, instance.changed_bytes())
        log = self._context.log.take().encode()
        return Template(instance.snapshot(), self._arg, address, self._context.vocabulary, log)


def _call(instance: Instance, export: int, *args: int) -> Generator[None, None, int]:
    """Calls an export; yields between slices and returns its result."""
    fiber = Fiber(instance, export, args)
    while not fiber.poll():
        yield
    return fiber.result
