"""Runs `aici_init` and takes the snapshot that every sequence of a (module, argument) starts from."""

from __future__ import annotations

from collections.abc import Callable
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
from aicirt.worker.work import Work

if TYPE_CHECKING:
    from aicirt.wasm.program import Program
    from aicirt.worker.vocabulary import LoadedVocabulary
    from aicirt.worker.work import Agenda


def build_template(
    agenda: Agenda,
    limits: RequestLimits,
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
        vocabulary=vocabulary, capabilities=capabilities, limits=limits, arg=arg, variables=None, seed=0
    )
    instance = Instance(program)
    instance.owner = context
    instance.log = context.write_log
    try:
        instance.start()
        address = instance.call(Export.ARG)
        check_arg(instance, address)
        if not program.has[Export.INIT]:
            done(_finish(instance, context, address, arg))
            instance.close()
            return
    except (AiciError, GuestExit) as error:
        instance.close()
        if isinstance(error, GuestExit):
            error = ControllerFailed(f"the controller stopped before aici_init ({error.reason})")
        raise _with_log(error, context) from None

    def ended(value: int | None, error: Exception | None) -> None:
        try:
            problem = _problem(value, error)
            if problem is None:
                done(_finish(instance, context, address, arg))
            else:
                done(_with_log(problem, context))
        except AiciError as failure:
            done(failure)
        finally:
            instance.close()

    fiber = Fiber(instance, Export.INIT, (len(arg),))
    agenda.start(Work(fiber, ended))


def _finish(instance: Instance, context: GuestContext, address: int, arg: bytes) -> Template:
    return Template(instance.snapshot(), arg, address, context.vocabulary, context.log.take().encode())


def _with_log(error: AiciError, context: GuestContext) -> AiciError:
    if context.log.waiting:
        error.detail.setdefault("log", context.log.take())
    return error


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
