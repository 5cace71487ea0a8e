"""Templates: what sequences of a (module, argument) start from, as a worker keeps them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.errors import RuntimeFailure
from aicirt.settings import WorkerSettings

if TYPE_CHECKING:
    from aicirt.wasm.snapshot import Snapshot
    from aicirt.worker.vocabulary import LoadedVocabulary


@dataclass(slots=True)
class Template:
    """A snapshot taken right after `aici_init`, before any prompt."""

    snapshot: Snapshot
    arg: bytes
    arg_address: int
    vocabulary: LoadedVocabulary
    #: what aici_init printed: every sequence's log begins with it
    log: bytes
    #: who has the limits of sequences that start from it
    owner: str = ""
    #: by which sequences ask for it; 0 = it has not been added
    number: int = 0


class Templates:
    """All templates of this worker, the least recently used given up beyond a number or their bytes."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._bytes = 0
        #: how many had to go for others
        self.given_up = 0
        self._numbers = itertools.count(1)
        self._templates: OrderedDict[int, Template] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return self._bytes

    def get(self, number: int) -> Template:
        """Raises RuntimeFailure if it has been given up."""
        try:
            template = self._templates[number]
        except KeyError:
            raise RuntimeFailure(f"template {number} has been given up for others", gone=number) from None
        self._templates.move_to_end(number)
        return template

    def add(self, template: Template) -> int:
        """Keeps it; returns its number."""
        template.number = next(self._numbers)
        self._templates[template.number] = template
        self._bytes += template.snapshot.nbytes
        self._shrink()
        return template.number

    def replace(self, number: int, template: Template) -> bool:
        """Puts `template` in the place of another; false if that has been given up.

        Sequences that have started from the old one keep what they have of it.
        """
        old = self._templates.get(number)
        if old is None:
            return False
        template.number = number
        self._templates[number] = template
        self._bytes += template.snapshot.nbytes - old.snapshot.nbytes
        self._shrink()
        return True

    def _shrink(self) -> None:
        while self._too_much():
            _, old = self._templates.popitem(last=False)
            self.given_up += 1
            self._bytes -= old.snapshot.nbytes

    def _too_much(self) -> bool:
        number, settings = len(self._templates), self._settings
        return number > settings.max_templates or (number > 1 and self._bytes > settings.snapshot_bytes)
