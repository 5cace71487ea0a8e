"""A client's sequences in one worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aicirt.contract.messages import StepInput
from aicirt.ipc.segment import Layout
from pyaici.client.address import WorkerAddress
from pyaici.client.calls import Calls
from pyaici.client.channel import Channel, Copy, Patience


class Outstanding(NamedTuple):
    """A step that a worker has not answered in time."""

    step: int
    seqs: frozenset[int]
    #: the wait for the answer
    patience: Patience
    #: whether the verdicts of pre_process are missing too
    pre: bool


class WorkerLink(Channel):
    """The sequences in one worker, their steps and callbacks."""

    def __init__(
        self, number: int, address: WorkerAddress, layout: Layout, copies: dict[int, Copy] | None = None
    ) -> None:
        """Raises as `Channel` does."""
        super().__init__(number, address, layout, copies)
        self.calls = Calls()
        #: number of the last step that was posted here
        self.last_step = 0
        #: the step that the worker has yet to answer; it gets no other one before
        self.outstanding: Outstanding | None = None
        #: inputs of sequences that are not in that step, which are sent after it
        self.held: dict[int, StepInput] = {}

    def hold(self, inputs: Iterable[StepInput]) -> None:
        """Keeps inputs that the outstanding step does not have, for `release`."""
        assert self.outstanding is not None
        for item in inputs:
            if item.seq not in self.outstanding.seqs and not item.final:
                self.held.setdefault(item.seq, item)

    def release(self, inputs: Iterable[StepInput]) -> list[StepInput]:
        """Returns the inputs of a step, with the tokens of those that were held."""
        return [self.held.pop(item.seq, item) for item in inputs]

    def begin(self, seq: int, exported: int) -> None:
        """Adds a sequence whose controller exports these callbacks, given as the flags that skip them."""
        self.rows.begin(seq)
        self.calls.begin(seq, exported)

    def inherit(self, parent: int, child: int) -> None:
        """Gives a child the callbacks and the row of its parent."""
        self.calls.inherit(parent, child)
        self.rows.inherit(parent, child)

    def forget(self, seq: int) -> None:
        """Drops the state of a sequence that has ended, and releases its row."""
        self.held.pop(seq, None)
        self.calls.forget(seq)
        self.rows.forget(seq)
