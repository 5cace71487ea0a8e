"""Drafts of controlled requests: what controllers would say if vLLM's guesses were sampled.

A controller is copied and the copy is told of the draft; its answer holds at the position behind. All
requests go on together, draft by draft: a copy each, and one step of the runtime for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aicirt.contract.errors import RuntimeFailure
from pyaici.engines.lines import permits
from pyaici.step import MidResult, Row, RowKind, StepInput, Verb

if TYPE_CHECKING:
    from pyaici.engines.vllm.controlled import Controlled
    from pyaici.runtime import Runtime

#: looking no further after so long: the model has made a pass meanwhile
SECONDS = 0.02
#: a controller that is late, or takes too long so many times in a row, has no drafts for so many passes
MOST_SLOW, PAUSE = 3, 8
#: of controllers for the drafts of one pass; each has two rows of shared memory
MOST_COPIES = 256


@dataclass(eq=False, slots=True)
class Guess:
    """A draft that the position before it allows, and the position behind it."""

    token: int
    #: the copy that has been told, by number at the runtime; None within a splice, which is told as a whole
    control: int | None
    answer: MidResult
    #: what the copy printed
    log: str = ""


class Drafts:
    """Fills `Controlled.guesses`."""

    def __init__(self, most: int) -> None:
        """`most`: copies of controllers that there may be."""
        self._most = most

    def follow(self, runtime: Runtime, wanted: Iterable[tuple[Controlled, Sequence[int]]]) -> None:
        """Finds the positions behind drafts of requests whose controllers have answered.

        A request's guesses end where a draft is forbidden, and where the controller says anything but which
        tokens may come. Raises RuntimeFailure.
        """
        start, room, everybody = time.monotonic(), self._most, list(wanted)
        requests = everybody
        while asked := [(one, drafts, told) for one, drafts in requests if (told := _told(one, drafts))][
            :room
        ]:
            if time.monotonic() - start > SECONDS:
                for one, _, _ in asked:
                    one.slow += 1
                    if one.slow == MOST_SLOW:
                        one.slow, one.pause = 0, PAUSE
                return
            room -= len(asked)
            requests = self._ask(runtime, asked)
        for one, _ in everybody:
            one.slow = 0

    def _ask(
        self, runtime: Runtime, asked: list[tuple[Controlled, Sequence[int], list[int]]]
    ) -> list[tuple[Controlled, Sequence[int]]]:
        """Has copies told of the next draft. Returns those that have answered."""
        copies = runtime.clone_each([one.last_control for one, _, _ in asked])
        going = {copies[one.last_control]: each for each in asked if (one := each[0]).last_control in copies}
        inputs = [StepInput(copy, told, 0, _samples(one)) for copy, (one, _, told) in going.items()]
        result = runtime.begin_step(inputs).wait()
        answered = []
        for copy, (one, drafts, _) in going.items():
            answer = result.mid.get(copy)
            if answer is None or answer.verb == Verb.LATE or isinstance(answer.error, RuntimeFailure):
                one.pause = PAUSE
                runtime.free([copy])
                continue
            log = result.logs.get(copy, "")
            one.guesses.append(Guess(drafts[len(one.guesses)], copy, answer, log))
            answered.append((one, drafts))
        return answered


def _told(controlled: Controlled, drafts: Sequence[int]) -> list[int]:
    """What a copy is to be told for the next draft; nothing if the position before it does not allow it.

    Drafts that a splice begins with are noted at once: they need no copy.
    """
    told: list[int] = []
    for token in drafts[len(controlled.guesses) :]:
        answer = controlled.answer_behind(len(controlled.guesses))
        if answer is None:
            break
        if answer.verb == Verb.SAMPLE:
            return [token] if is_mask(answer.row) and allows(answer.row, token) else []
        if answer.verb != Verb.SPLICE or answer.backtrack or answer.ff_tokens[:1] != [token]:
            break
        told.append(token)
        rest = answer.ff_tokens[1:]
        if not rest:
            return told
        if token in controlled.stops:  # vLLM would end the text there
            break
        controlled.guesses.append(Guess(token, None, replace(answer, ff_tokens=rest)))
    return []


def _samples(controlled: Controlled) -> bool:
    """Whether the next draft would be sampled; else it belongs to a splice."""
    answer = controlled.answer_behind(len(controlled.guesses))
    return answer is not None and answer.verb == Verb.SAMPLE


def is_mask(row: Row | None) -> bool:
    """Whether a row says which tokens may come, and no more."""
    return row is None or row.kind in (RowKind.ALL, RowKind.BITMASK, RowKind.TOKEN)


def allows(row: Row | None, token: int) -> bool:
    """Whether a mask has this token."""
    return row is None or permits(row, token)
