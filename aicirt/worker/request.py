"""What the forks of one request share."""

from __future__ import annotations

from aicirt.settings import RequestLimits
from aicirt.worker.variables import Variables


class Request:
    """Variables and counts of a sequence and everything forked from it."""

    __slots__ = ("clones", "idle_rounds", "limits", "live", "seed", "variables", "writes_seen")

    def __init__(self, limits: RequestLimits, seed: int) -> None:
        self.limits = limits
        self.seed = seed
        self.variables = Variables(limits)
        #: live sequences; of these, `clones` were made by the engine and are not held against the guest
        self.live = 1
        self.clones = 0
        #: rounds in which every sequence was suspended and no variable was written
        self.idle_rounds = 0
        self.writes_seen = 0

    def round_over(self, stepped: int, suspended: int) -> bool:
        """Counts a round; True if the request has been stuck for too long.

        A round counts as idle if all live sequences took part, all were suspended, and
        none wrote a variable that another could be waiting for.
        """
        writes = self.variables.writes
        if stepped == suspended == self.live and writes == self.writes_seen:
            self.idle_rounds += 1
        else:
            self.idle_rounds = 0
        self.writes_seen = writes
        return self.idle_rounds > self.limits.max_suspended_steps
