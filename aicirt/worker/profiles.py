"""Profiles of ended sequences: asks their guests when idle, and keeps the answers for the supervisor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aicirt.contract.abi import FOUND_RESULT, Export
from aicirt.contract.errors import AiciError, ResultError
from aicirt.settings import MAX_FOUND_BYTES, MAX_PROFILES
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit
from aicirt.worker.results import check_span, too_small

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.worker.memory import GuestMemory
    from aicirt.worker.scheduling import Agenda
    from aicirt.worker.sequence import Sequence
    from aicirt.worker.templates import Template, Templates

_log = logging.getLogger("aicirt.worker")
_FOUND = FOUND_RESULT.packer("size", "data_len")
_FOUND_SIZE = FOUND_RESULT.size


class Profiles:
    """Bounded: at most MAX_PROFILES guests and answers, and one of each template until it is replaced."""

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
