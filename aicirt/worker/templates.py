"""Templates: snapshots from which sequences of a (module, argument) start, built, warmed and cached.

And what ended sequences have found, with which later ones are warmed.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.contract.abi import FOUND, FOUND_RESULT, Export
from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    ControllerFailed,
    ResultError,
    RuntimeFailure,
    SpaceError,
    TemplateGoneError,
)
from aicirt.contract.owners import to_evict
from aicirt.settings import MAX_FOUND_BYTES, MAX_PROFILES, RequestLimits, WorkerSettings
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit, Linker
from aicirt.wasm.instance import Instance
from aicirt.wasm.program import Program, Started
from aicirt.wasm.snapshot import changed, grown_bytes, start_from, take_snapshot
from aicirt.worker.hostapi import GuestContext, LoadedVocabulary
from aicirt.worker.results import check_span, too_small
from aicirt.worker.sequence import check_arg

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.wasm.program import Snapshot
    from aicirt.worker.memory import GuestMemory
    from aicirt.worker.scheduling import Agenda
    from aicirt.worker.sequence import Sequence


class Programs:
    """A cache of programs, which loads each on first use.

    Beyond a number, evicts the least recently used one of the owner who has had the most loaded. An evicted
    program is unloaded when no guest and no template of it is left.
    """

    def __init__(self, linker: Linker, limit: int) -> None:
        self._linker = linker
        self._limit = limit
        #: by module: the owner who needed it first, and the program
        self._programs: OrderedDict[str, tuple[str, Program]] = OrderedDict()
        #: number of evicted programs
        self.given_up = 0

    def find_program(self, module: str, path: str, owner: str) -> Program:
        """Returns the program of a module id, whose compiled code is at `path`. Raises ModuleError."""
        kept = self._programs
        if module not in kept:
            program = Program.from_file(self._linker, path)
            program.id = module
            kept[module] = owner, program
            if len(kept) > self._limit:
                _, old = kept.pop(to_evict((key, one, 1) for key, (one, _) in kept.items()))
                old.started = None
                self.given_up += 1
        kept.move_to_end(module)
        return kept[module][1]


@dataclass(slots=True)
class Template:
    """A snapshot taken right after `aici_init`, before any prompt."""

    snapshot: Snapshot
    arg: bytes
    arg_address: int
    vocabulary: LoadedVocabulary
    #: output of aici_init, with which every sequence's log begins
    log: bytes
    #: owner of the sequences that start from it
    owner: str = ""
    #: number by which clients start sequences from it; 0 = not added yet
    number: int = 0
    #: an ended sequence has been asked what it found, and the answer has not led to a new template yet
    asked: bool = False


class Templates:
    """All templates of this worker.

    Beyond a number or a size in bytes, evicts the least recently used one of the owner with the most.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._bytes = 0
        #: number of evicted templates
        self.given_up = 0
        self._numbers = itertools.count(1)
        self._templates: OrderedDict[int, Template] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return self._bytes

    def find_template(self, number: int) -> Template:
        """Returns a template. Raises TemplateGoneError if it has been evicted."""
        try:
            template = self._templates[number]
        except KeyError:
            raise TemplateGoneError(f"template {number} was evicted") from None
        self._templates.move_to_end(number)
        return template

    def find(self, number: int) -> Template | None:
        """Returns a template, or None if it has been evicted. Does not count as a use."""
        return self._templates.get(number)

    def add(self, template: Template) -> int:
        """Adds a template; returns its number."""
        template.number = next(self._numbers)
        self._keep(template)
        return template.number

    def replace(self, number: int, template: Template) -> bool:
        """Replaces a template; returns False if the old one has been evicted.

        Sequences that have started from the old template keep its memory.
        """
        old = self._templates.get(number)
        if old is None:
            return False
        self._bytes -= old.snapshot.nbytes
        template.number = number
        self._keep(template)
        return True

    def _keep(self, template: Template) -> None:
        self._templates[template.number] = template
        self._bytes += template.snapshot.nbytes
        kept, settings = self._templates, self._settings
        while (many := len(kept) > settings.max_templates) or (
            len(kept) > 1 and self._bytes > settings.snapshot_bytes
        ):
            gone = to_evict((key, one.owner, 1 if many else one.snapshot.nbytes) for key, one in kept.items())
            self._bytes -= kept.pop(gone).snapshot.nbytes
            self.given_up += 1


_log = logging.getLogger("aicirt.worker")
#: the most memory that a module may have written when its guests start, for this state to be kept
_MAX_STARTED = 1 << 20


class Build:
    """The calls that make a template: the start function, `_initialize`, `aici_arg` and `aici_init`.

    A build is a task of the agenda and runs in slices. The first slice loads the program and makes the
    instance; then each call is a fiber with the limit `init_ms`.
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
        """`load` returns the module's program. `done` receives the template or the error."""
        self.owner = owner
        self._memory = memory
        #: CPU time (ns) of all slices so far
        self.used_ns = 0
        self._load = load
        self._arg = arg
        self._done = done
        self._context = GuestContext(vocabulary, capabilities, limits, arg)
        self._instance: Instance | None = None
        self._slices = self._make_template()
        self._ended = False

    def run(self) -> bool:
        """Runs one slice; returns whether it was the last."""
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
        if not self._ended:  # the memory check may have ended it through `fail`
            self._end_with(outcome)
        return True

    def cancel(self) -> None:
        """Ends the build; `done` receives an error at once."""
        self.fail(RuntimeFailure("all requests with this argument were cancelled"))

    def fail(self, error: AiciError) -> None:
        """Ends the build with an error from outside."""
        if not self._ended:
            self._end_with(error)

    def _end_with(self, outcome: Template | AiciError) -> None:
        self._ended = True
        if isinstance(outcome, AiciError) and self._context.log.waiting:
            outcome.detail.setdefault("log", self._context.log.take_text())
        if self._instance is not None:
            self._instance.close()
        self._done(outcome)

    def _make_template(self) -> Generator[None, None, Template]:
        """Makes the template; yields between slices."""
        program, context = self._load(), self._context
        vocabulary, capabilities = context.vocabulary, context.capabilities
        known = program.started
        if known and (known.vocabulary is not vocabulary or known.capabilities != capabilities):
            known = None
        self._instance = instance = start_from(known.snapshot) if known else Instance(program)
        context.bind(instance)
        self._memory.watch(instance, self.owner, self.fail)
        yield
        if not known:
            for export in (Export.START, Export.INITIALIZE):
                if program.has[export]:
                    yield from _call(instance, export)
            if self._starts_alike(instance):
                program.started = Started(vocabulary, capabilities, take_snapshot(instance))
        address = yield from _call(instance, Export.ARG)
        check_arg(instance, address)
        context.arg_address = address
        if program.has[Export.INIT]:
            try:
                value = yield from _call(instance, Export.INIT, len(self._arg))
            except ControllerFailed as error:
                raise ArgumentError(error.message, **error.detail) from None
            except GuestExit as error:
                raise ArgumentError(f"the controller stopped in aici_init ({error.reason})") from None
            if value:
                raise ArgumentError(f"the controller refused its argument (aici_init returned {value})")
        yield  # a snapshot of a large memory takes some milliseconds
        runs = changed(instance)
        self._memory.check(self.owner, sum(length for _, length in runs))
        log = context.log.take_text().encode()
        template = Template(take_snapshot(instance, runs), self._arg, address, vocabulary, log)
        instance.close(runs, reserved=True)
        return template

    def _starts_alike(self, instance: Instance) -> bool:
        """Returns whether every guest of the program begins as this one has, with any argument."""
        context = self._context
        knows_nothing = not context.asked and not context.log.waiting and instance.random is None
        return knows_nothing and instance.changed_bytes() <= _MAX_STARTED


def _call(instance: Instance, export: int, *args: int) -> Generator[None, None, int]:
    """Calls an export and returns its result; yields between slices."""
    fiber = Fiber(instance, export, args)
    while not fiber.poll():
        yield
    return fiber.result


#: results of `aici_warm`
_DONE, _MORE = 0, 1


@dataclass(frozen=True, slots=True)
class Warmed:
    """A template in which `aici_warm` has run."""

    template: Template
    #: whether `aici_warm` has more to do
    more: bool


class Warming:
    """Calls of `aici_warm` in an instance of a template, without a prompt; a task for `Agenda.when_idle`.

    Ends when the guest is done, when `budget_ms` of CPU time are spent, or when the snapshot has grown by
    half of `most_bytes`: the pages that the last call adds must fit into the other half.
    """

    def __init__(
        self,
        template: Template,
        capabilities: dict[int, int],
        limits: RequestLimits,
        budget_ms: float,
        most_bytes: int,
        found: bytes,
        done: Callable[[Warmed | AiciError], None],
    ) -> None:
        """`done` receives the new template or the error; `template` stays unchanged.

        `found`: what a sequence of the same template has found, for the guest to learn; b"" = nothing.

        Raises RuntimeFailure if there is no room for an instance.
        """
        self.owner = template.owner
        self._template = template
        self._budget_ns = int(budget_ms * 1e6)
        self._most_bytes = most_bytes
        self._done = done
        self._spent_ns = 0
        self._over = False
        self.instance = instance = start_from(template.snapshot)
        # its output is dropped with it: logs must not depend on whether a template is warm
        context = GuestContext(template.vocabulary, capabilities, limits, template.arg)
        context.sources[FOUND] = found
        context.bind(instance)
        self._fiber = Fiber(instance, Export.WARM)

    def run(self) -> bool:
        """Runs one slice; returns whether it was the last."""
        if self._over:
            return True
        begin = time.thread_time_ns()
        try:
            if not self._fiber.poll():
                self._spent_ns += time.thread_time_ns() - begin
                return False
            self._spent_ns += time.thread_time_ns() - begin
            more = _more(self._fiber.result) and grown_bytes(self.instance) < self._most_bytes // 2
            if more and self._spent_ns < self._budget_ns:
                self._fiber = Fiber(self.instance, Export.WARM)
                return False
            outcome: Warmed | AiciError = Warmed(self._take(), more)
        except Exception as error:
            outcome = _problem(error)
        self._end_with(outcome)
        return True

    def fail(self, error: AiciError) -> None:
        """Ends the warming with an error from outside."""
        if not self._over:
            self._end_with(error)

    def _end_with(self, outcome: Warmed | AiciError) -> None:
        self._over = True
        self.instance.close()
        self._done(outcome)

    def _take(self) -> Template:
        grown = grown_bytes(self.instance)
        if grown > self._most_bytes:
            raise SpaceError(
                f"aici_warm made the snapshot {grown} bytes larger; the limit is {self._most_bytes}",
                limit=self._most_bytes,
            )
        return dataclasses.replace(
            self._template, snapshot=take_snapshot(self.instance), number=0, asked=False
        )


def _more(result: int) -> bool:
    if result not in (_DONE, _MORE):
        raise ControllerFailed(f"aici_warm returned {result}; it must return 1 (more to do) or 0 (done)")
    return result == _MORE


def _problem(error: Exception) -> AiciError:
    if isinstance(error, AiciError):
        return error
    if isinstance(error, GuestExit):
        return ControllerFailed(f"the controller stopped in aici_warm ({error.reason})")
    return RuntimeFailure(f"aici_warm failed: {error!r}")


_FOUND = FOUND_RESULT.packer("size", "data_len")
_FOUND_SIZE = FOUND_RESULT.size


class Profiles:
    """Profiles of ended sequences: asks their guests when idle, and keeps the answers for the supervisor.

    Bounded: at most MAX_PROFILES guests and answers, and one of each template until it is replaced.
    """

    def __init__(self, templates: Templates, memory: GuestMemory, agenda: Agenda) -> None:
        self._templates = templates
        self._memory = memory
        self._agenda = agenda
        self._asking = 0
        #: (number of the template, what was found)
        self._answers: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        """The number of answers."""
        return len(self._answers)

    def offer(self, seq: Sequence) -> bool:
        """Takes over the guest of a sequence that has ended well, if it is worth asking."""
        instance = seq.instance
        if not instance.program.has[Export.FOUND] or self._asking + len(self._answers) >= MAX_PROFILES:
            return False
        if seq.mid is not None or seq.outcome is not None or not seq.step:
            return False
        if instance.failed or not instance.store:
            return False
        template = self._templates.find(seq.request.template)
        if template is None or template.asked:
            return False
        seq.context.without_request().bind(instance)  # its output is dropped
        template.asked = True
        self._asking += 1
        question = _Question(template, instance, self._answered)
        self._memory.watch(instance, template.owner, question.fail)
        self._agenda.when_idle(question)
        return True

    def take_found(self) -> list[tuple[int, bytes]]:
        """Returns and removes all answers."""
        answers, self._answers = self._answers, []
        return answers

    def _answered(self, template: Template, found: bytes | None) -> None:
        """`found`: None after a failure, as the next guest would fail, too."""
        self._asking -= 1
        if found:
            self._answers.append((template.number, found))
        else:
            template.asked = found is None


class _Question:
    """The call of `aici_found`; a task for `Agenda.when_idle`."""

    def __init__(
        self, template: Template, instance: Instance, done: Callable[[Template, bytes | None], None]
    ) -> None:
        self.owner = template.owner
        self._template = template
        self._instance = instance
        self._done = done
        self._fiber: Fiber | None = None
        self._over = False

    def run(self) -> bool:
        """Runs one slice; returns whether it was the last."""
        if self._over:
            return True
        try:
            if self._fiber is None:
                self._fiber = Fiber(self._instance, Export.FOUND)
            if not self._fiber.poll():
                return False
            self._end_question(_read_found(self._instance, self._fiber.result))
        except (AiciError, GuestExit):
            self._end_question(None)
        except Exception:
            _log.exception("asking an ended sequence failed")
            self._end_question(None)
        return True

    def fail(self, _: AiciError) -> None:
        """Ends the call from outside."""
        self._end_question(None)

    def _end_question(self, found: bytes | None) -> None:
        if not self._over:
            self._over = True
            self._instance.close()
            self._done(self._template, found)


def _read_found(instance: Instance, address: int) -> bytes:
    """Reads an aici_found_result. Raises ResultError if it is invalid."""
    check_span(instance, address, _FOUND_SIZE, "aici_found_result")
    size, data, length = _FOUND.unpack_from(instance.view, address)
    if size < _FOUND_SIZE:
        raise too_small("aici_found_result", size, _FOUND_SIZE)
    if length > MAX_FOUND_BYTES:
        raise ResultError(f"aici_found_result: {length} bytes; the limit is {MAX_FOUND_BYTES}")
    check_span(instance, data, length, "data")
    return instance.read(data, length)
