"""The live sequences of a client, and where they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from operator import itemgetter

from aicirt.errors import UnknownSequenceError, WorkerDiedError
from aicirt.ipc.messages import FREE, Free
from pyaici.link import WorkerLink
from pyaici.step import StepInput

#: the sequence of a StepInput
SEQ = itemgetter(0)


class Sequences(dict[int, WorkerLink]):
    """By number: the link to the worker where each is."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def link(self, seq: int) -> WorkerLink:
        """Raises UnknownSequenceError if it is not live."""
        try:
            return self[seq]
        except KeyError:
            raise UnknownSequenceError(f"no live sequence has the number {seq}") from None

    def fresh_number(self) -> int:
        """For a sequence that this client makes; children that a worker numbers have the top bit set."""
        while (seq := next(self._numbers) & 0x7FFFFFFF) in self or seq == 0:
            pass
        return seq

    def start(self, seq: int, link: WorkerLink, *, has_pre: bool, has_post: bool) -> None:
        """It lives; its controller has these callbacks."""
        self[seq] = link
        if has_pre or has_post:
            link.critical.add(seq)
        if has_post:
            link.measured.add(seq)

    def inherit(self, parent: int, children: Iterable[int]) -> None:
        """A sequence was forked: the children live where it lives."""
        link = self.link(parent)
        for child in children:
            link.inherit(parent, child)
            self[child] = link

    def ended(self, seq: int) -> None:
        """The worker has ended it."""
        link = self.pop(seq, None)
        if link is not None:
            link.forget(seq)

    def free(self, seqs: Iterable[int]) -> None:
        """Ends sequences; numbers that are not live (any more) are ignored."""
        by_link: dict[WorkerLink, list[int]] = {}
        for seq in seqs:
            link = self.pop(seq, None)
            if link is not None:
                link.forget(seq)
                by_link.setdefault(link, []).append(seq)
        for link, numbers in by_link.items():
            if not link.dead:
                try:
                    link.send(Free(FREE, numbers))
                except WorkerDiedError:
                    continue

    def by_link(self, inputs: Sequence[StepInput]) -> Iterable[tuple[WorkerLink, Sequence[StepInput]]]:
        """What goes to which worker. Raises UnknownSequenceError."""
        found: dict[WorkerLink, list[StepInput]] = {}
        for item in inputs:
            found.setdefault(self.link(item.seq), []).append(item)
        return found.items()

    def all_live(self, inputs: Sequence[StepInput]) -> bool:
        """Whether every sequence of a step is."""
        return all(map(self.__contains__, map(SEQ, inputs)))
