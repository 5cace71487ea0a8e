"""What the forks of one request share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicirt.errors import AiciError, DeadlockError, LivelockError
from aicirt.settings import RequestLimits
from aicirt.worker.variables import Variables, Written

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner


class Request:
    """Variables and counts of a sequence and everything forked from it."""

    __slots__ = (
        "clones",
        "idle_rounds",
        "limits",
        "live",
        "owner",
        "suspended_rounds",
        "variables",
        "writes_seen",
    )

    def __init__(
        self, limits: RequestLimits, owner: Owner | None = None, written: Written | None = None
    ) -> None:
        """`written`: see `Variables`."""
        self.limits = limits
        #: for whom it runs
        self.owner = owner
        self.variables = Variables(limits, owner, written)
        #: live sequences; of these, `clones` were made by the engine and are not held against the guest
        self.live = 1
        self.clones = 0
        #: rounds in a row in which every sequence was suspended and no variable was written
        self.suspended_rounds = 0
        #: rounds in a row in which some sequences were suspended and no sequence got or lost a token
        self.idle_rounds = 0
        self.writes_seen = 0

    @property
    def owner_name(self) -> str:
        """The owner's name; "" if it runs for nobody in particular."""
        return "" if self.owner is None else self.owner.name

    def left(self, by_engine: bool) -> None:
        """One of its sequences has ended; `by_engine`: it was a clone that the engine had made."""
        self.live -= 1
        self.clones -= by_engine
        if self.live == 0:
            self.variables.clear()

    def round_over(self, suspended: int, going: int, changed: bool) -> AiciError | None:
        """Counts a round in which some sequences were suspended; what they end with if that is too much.

        `suspended` and `going` are numbers of sequences, `changed` tells whether tokens came or went. A round
        counts only if all live sequences took part: others may be what the suspended ones wait for.
        """
        limits, writes = self.limits, self.variables.writes
        everybody = suspended + going == self.live
        stuck = everybody and not going and writes == self.writes_seen
        self.suspended_rounds = self.suspended_rounds + 1 if stuck else 0
        self.idle_rounds = self.idle_rounds + 1 if everybody and not changed else 0
        self.writes_seen = writes
        if self.suspended_rounds > limits.max_suspended_steps:
            return DeadlockError(
                f"all {suspended} sequences of the request stayed suspended for "
                f"{limits.max_suspended_steps} rounds and wrote no variable"
            )
        if self.idle_rounds > limits.max_idle_steps:
            return LivelockError(
                f"{suspended} of the {self.live} sequences of the request stayed suspended for "
                f"{limits.max_idle_steps} rounds in which no token came or went"
            )
        return None
