"""The live sequences of a client, and the worker of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from operator import itemgetter

from aicirt.contract.abi import MID_SKIP_POST, MID_SKIP_PRE
from aicirt.contract.errors import ClosedError, RuntimeFailure, UnknownSequenceError
from aicirt.contract.messages import FREE, Free, StepInput
from pyaici.client.channel import Channel, Copy
from pyaici.client.link import WorkerLink

#: the sequence of a StepInput
SEQ = itemgetter(0)


class Sequences(dict[int, WorkerLink]):
    """Maps the number of each live sequence to the link to its worker."""

    __slots__ = ("_closed", "_numbers", "copying", "repeatable")

    def __init__(self) -> None:
        super().__init__()
        #: sequences whose clones can take steps that are discarded
        self.repeatable: set[int] = set()
        #: copies that have been asked for, by number
        self.copying: dict[int, Copy] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def link(self, seq: int) -> WorkerLink:
        """Returns the link of a sequence.

        Raises UnknownSequenceError if it is not live, ClosedError after `close`.
        """
        try:
            return self[seq]
        except KeyError:
            self.check_open()
            raise UnknownSequenceError(f"no live sequence has the number {seq}") from None

    def fresh_number(self) -> int:
        """Returns a number for a new sequence; children that a worker numbers have the top bit set."""
        while (seq := next(self._numbers) & 0x7FFFFFFF) in self or seq in self.copying or seq == 0:
            pass
        return seq

    def start(
        self, seq: int, link: WorkerLink, *, has_pre: bool, has_post: bool, repeatable: bool = False
    ) -> None:
        """Adds a sequence whose controller has these callbacks."""
        self[seq] = link
        if repeatable:
            self.repeatable.add(seq)
        link.begin(seq, MID_SKIP_PRE * has_pre | MID_SKIP_POST * has_post)

    def inherit(self, parent: int, children: Iterable[int]) -> None:
        """Adds the children of a fork, in their parent's worker."""
        link = self.link(parent)
        for child in children:
            if parent in self.repeatable:
                self.repeatable.add(child)
            link.inherit(parent, child)
            self[child] = link

    def ended(self, seq: int) -> None:
        """Removes a sequence that its worker has ended."""
        link = self.pop(seq, None)
        if link is not None:
            self.repeatable.discard(seq)
            link.forget(seq)

    def free(self, seqs: Iterable[int]) -> None:
        """Ends sequences and the copies asked for of them; ignores numbers of sequences that are not live."""
        by_link: dict[Channel, list[int]] = {}
        if self.copying:
            seqs = set(seqs)
            for child, copy in list(self.copying.items()):
                if child in seqs or copy.parent in seqs:
                    del self.copying[child]
                    by_link.setdefault(copy.link, []).append(child)
        for seq in seqs:
            link = self.pop(seq, None)
            if link is not None:
                self.repeatable.discard(seq)
                link.forget(seq)
                by_link.setdefault(link, []).append(seq)
        for channel, numbers in by_link.items():
            if not channel.dead:
                try:
                    channel.send(Free(FREE, numbers))
                except RuntimeFailure:  # the worker has ended, or does not read: later calls report it
                    continue

    def close(self) -> None:
        """Forgets all sequences, because the runtime is closed."""
        self._closed = True
        self.clear()
        self.copying.clear()

    def check_open(self) -> None:
        """Raises ClosedError after `close`."""
        if self._closed:
            raise ClosedError from None

    def by_link(self, inputs: Sequence[StepInput]) -> Iterable[tuple[WorkerLink, Sequence[StepInput]]]:
        """Groups inputs by worker. Raises UnknownSequenceError or ClosedError."""
        self.check_open()
        found: dict[WorkerLink, list[StepInput]] = {}
        for item in inputs:
            found.setdefault(self.link(item.seq), []).append(item)
        return found.items()

    def all_live(self, inputs: Sequence[StepInput]) -> bool:
        """Returns whether every sequence of a step is live."""
        return all(map(self.__contains__, map(SEQ, inputs)))
