"""Moves requests to another worker, on demand or because their worker is busier than others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure, SupervisorDiedError, error_from_wire
from aicirt.contract.messages import FREE, REPLY_ERROR, STAY, STAYED, Free, Stay
from aicirt.settings import CALL_SECONDS
from pyaici.client.control import Control
from pyaici.client.link import WorkerAddress, WorkerLink
from pyaici.client.sequences import Family, Sequences

#: how often a client checks whether the supervisor has advised a move
_LOOK_SECONDS = 0.25
#: the pause after an advice: workers report their new load a second after the move
_ADVICE_SECONDS = 2.0
#: the least time between two automatic moves of a request: one that uses all of a worker's time would move
#: again and again
_AGAIN_SECONDS = 30.0
#: how long a step waits for a move of its request; then it asks the old worker to keep the request
_PATIENCE_SECONDS = 0.005
#: for the old worker's answer, which comes between two slices of guests
_STAY_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Move:
    """A move under way. The client sends nothing about the request until the move is settled."""

    family: Family
    source: WorkerLink
    target: WorkerLink
    #: number of the call to the supervisor
    call: int


class Moves:
    """The moves of this client's requests. Every method is called between two steps of the request."""

    def __init__(
        self,
        control: Control,
        live: Sequences,
        attach: Callable[[WorkerAddress], WorkerLink],
        in_step: Callable[[int], bool],
    ) -> None:
        self._control = control
        self._live = live
        self._attach = attach
        self._in_step = in_step
        #: moves under way, checked at the end of steps
        self.pending: list[Move] = []
        #: (call, new worker, sequences) of moves whose old worker has died meanwhile
        self._lost: list[tuple[int, WorkerLink, list[int]]] = []
        #: whether there are several workers, so that requests move automatically
        self.automatic = control.hello.get("workers", 1) > 1
        self._next_look = 0.0
        #: number of the pending call `advise`, answered when a request should move; 0 if none is pending
        self._advice = 0

    # -- moves on demand ---------------------------------------------------------------------------

    def move(self, seq: int, worker: int | None) -> int:
        """See `Runtime.move`."""
        self._live.link(seq)  # raises if the sequence is not live
        self.settle([seq])
        family, source = self._live.families[seq], self._live.link(seq)
        self._check_idle(family)
        if worker == source.index:
            return worker
        here = [source.index, source.generation]
        address = WorkerAddress.from_wire(self._control.call("destination", source=here, worker=worker))
        move = self._begin(family, source, address)
        problem = self._settle(move, self._answer(move.call, CALL_SECONDS))
        if problem is not None:
            raise problem
        return move.target.index

    def settle(self, seqs: Iterable[int]) -> None:
        """Ends the moves of these sequences: completes them, or has the requests stay."""
        wanted = set(seqs)
        for move in list(self.pending):
            if not wanted.isdisjoint(move.family.members):
                self._settle(move, self._answer(move.call, _PATIENCE_SECONDS))

    # -- automatic moves ---------------------------------------------------------------------------

    def look(self, stepped: Iterable[int]) -> None:
        """Settles moves that have been answered, and begins a move that the supervisor advises.

        `stepped`: the sequences of the step. Does not wait, unless a worker is new to this client.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        try:
            self._look(set(stepped), now)
        except SupervisorDiedError:
            self.automatic = False
        except RuntimeFailure:
            pass  # there is no room for another link, or the worker has ended: steps go on where they are

    def _look(self, stepped: set[int], now: float) -> None:
        self._free_lost()
        for move in list(self.pending):
            answer = self._control.poll(move.call)
            if answer is not None:
                self._settle(move, answer)
        if self.pending:
            return
        if not self._advice:
            self._advice = self._control.post("advise")
            return
        reply = self._control.poll(self._advice)
        if reply is None:
            return
        self._advice = 0
        self._next_look = now + _ADVICE_SECONDS
        _, error, advice, *_ = reply
        if error is None:
            family = self._candidate(advice["source"], stepped, now)
            if family is not None:
                family.moved_at = now
                source = self._live.link(next(iter(family.members)))
                self._begin(family, source, WorkerAddress.from_wire(advice["target"]))

    def _candidate(self, where: list[int], stepped: set[int], now: float) -> Family | None:
        """Returns a request in a worker that may move: preferably one that has not just been stepped."""
        found: Family | None = None
        for seq, link in self._live.items():
            family = self._live.families[seq]
            if [link.index, link.generation] != where or now - family.moved_at < _AGAIN_SECONDS:
                continue
            if any(self._in_step(member) for member in family.members):
                continue
            if family.members.isdisjoint(stepped):
                return family
            found = found or family
        return found

    # -- one move --------------------------------------------------------------------------------------

    def _begin(self, family: Family, source: WorkerLink, address: WorkerAddress) -> Move:
        target = self._attach(address)
        call = self._control.post(
            "move",
            source=[source.index, source.generation],
            target=[target.index, target.generation],
            seqs=sorted(family.members),
        )
        move = Move(family, source, target, call)
        self.pending.append(move)
        return move

    def _settle(self, move: Move, reply: list[Any] | None) -> AiciError | None:
        """Ends a move with the supervisor's reply, None if it has not come: the request is needed now.

        Returns why the request has stayed, or None if it has moved.
        """
        self.pending.remove(move)
        if reply is None:
            problem = self._keep(move)
        else:
            problem = None if reply[REPLY_ERROR] is None else error_from_wire(reply[REPLY_ERROR])
        if problem is None:
            self._live.moved(move.family, move.target)
        return problem

    def _keep(self, move: Move) -> AiciError | None:
        """Has the old worker keep a request. Returns why it stays, or None if it has moved already."""
        seq = min(move.family.members)
        try:
            move.source.send(Stay(STAY, seq))
            here = move.source.expect(STAYED, seq, _STAY_SECONDS)[2]
        except RuntimeFailure as error:  # it counts as lost with the worker, even if it has just moved
            self._lost.append((move.call, move.target, list(move.family.members)))
            return error
        self._control.give_up(move.call)
        return RuntimeFailure("it was not there in time, and stays") if here else None

    def _answer(self, call: int, seconds: float) -> list[Any] | None:
        try:
            return self._control.poll(call, seconds)
        except RuntimeFailure:  # the supervisor has ended: `_keep` asks the old worker
            return None

    def _free_lost(self) -> None:
        """Frees sequences that had moved just before their old worker died: they count as lost."""
        for lost in list(self._lost):
            call, target, seqs = lost
            reply = self._control.poll(call)
            if reply is not None:
                self._lost.remove(lost)
                if reply[REPLY_ERROR] is None and not target.gone:
                    target.send(Free(FREE, seqs))

    def _check_idle(self, family: Family) -> None:
        for seq in family.members:
            if self._in_step(seq):
                raise RuntimeFailure(
                    f"sequence {seq} of the request is in a step under way: it can move when Step.wait has "
                    "returned"
                )
