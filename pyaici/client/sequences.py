"""The live sequences of a client, and the worker of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from aicirt.contract.abi import MID_SKIP_POST, MID_SKIP_PRE
from aicirt.contract.errors import RuntimeFailure, UnknownSequenceError
from aicirt.contract.messages import FREE, Free, StepInput
from pyaici.client.link import WorkerLink

#: the sequence of a StepInput
SEQ = itemgetter(0)


@dataclass(slots=True)
class Family:
    """The live sequences of one request: they share a worker, and move together."""

    members: set[int]
    #: whether steps of copies can be discarded
    repeatable: bool = False
    #: time.monotonic() of the last attempt to move it
    moved_at: float = -math.inf


class Sequences(dict[int, WorkerLink]):
    """Maps the number of each live sequence to the link to its worker."""

    __slots__ = ("_numbers", "families")

    def __init__(self) -> None:
        super().__init__()
        #: by number of each live sequence
        self.families: dict[int, Family] = {}
        self._numbers = itertools.count(1)

    def link(self, seq: int) -> WorkerLink:
        """Returns the link of a sequence. Raises UnknownSequenceError if it is not live."""
        try:
            return self[seq]
        except KeyError:
            raise UnknownSequenceError(f"no live sequence has the number {seq}") from None

    def fresh_number(self) -> int:
        """Returns a number for a new sequence; children that a worker numbers have the top bit set."""
        while (seq := next(self._numbers) & 0x7FFFFFFF) in self or seq == 0:
            pass
        return seq

    def start(
        self, seq: int, link: WorkerLink, *, has_pre: bool, has_post: bool, repeatable: bool = False
    ) -> None:
        """Adds a sequence whose controller has these callbacks."""
        self[seq] = link
        self.families[seq] = Family({seq}, repeatable)
        if has_pre or has_post:
            link.exports[seq] = MID_SKIP_PRE * has_pre | MID_SKIP_POST * has_post
            link.as_exported(seq)

    def inherit(self, parent: int, children: Iterable[int]) -> None:
        """Adds the children of a fork, in their parent's worker."""
        link, family = self.link(parent), self.families[parent]
        for child in children:
            family.members.add(child)
            self.families[child] = family
            link.inherit(parent, child)
            self[child] = link

    def ended(self, seq: int) -> None:
        """Removes a sequence that its worker has ended."""
        link = self.pop(seq, None)
        if link is not None:
            self.families.pop(seq).members.discard(seq)
            link.forget(seq)

    def moved(self, family: Family, target: WorkerLink) -> None:
        """Records that all sequences of a request are in another worker now."""
        for seq in family.members:
            self[seq].hand_over(seq, target)
            self[seq] = target

    def free(self, seqs: Iterable[int]) -> None:
        """Ends sequences; ignores numbers of sequences that are not live."""
        by_link: dict[WorkerLink, list[int]] = {}
        for seq in seqs:
            link = self.pop(seq, None)
            if link is not None:
                self.families.pop(seq).members.discard(seq)
                link.forget(seq)
                by_link.setdefault(link, []).append(seq)
        for link, numbers in by_link.items():
            if not link.dead:
                try:
                    link.send(Free(FREE, numbers))
                except RuntimeFailure:  # the worker has ended, or does not read: later calls report it
                    continue

    def by_link(self, inputs: Sequence[StepInput]) -> Iterable[tuple[WorkerLink, Sequence[StepInput]]]:
        """Groups inputs by worker. Raises UnknownSequenceError."""
        found: dict[WorkerLink, list[StepInput]] = {}
        for item in inputs:
            found.setdefault(self.link(item.seq), []).append(item)
        return found.items()

    def all_live(self, inputs: Sequence[StepInput]) -> bool:
        """Returns whether every sequence of a step is live."""
        return all(map(self.__contains__, map(SEQ, inputs)))
