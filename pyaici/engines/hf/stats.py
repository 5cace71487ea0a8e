"""Where the time of the steps goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """Parts of a step, in order. All but FORWARD and SAMPLE are what control adds."""

    #: handing the runtime what happened in the last step
    POST = "post"
    #: waiting for post_process and pre_process (the critical path)
    PRE = "pre wait"
    #: launching the model; on CUDA it runs on, and the time shows where its result is first read
    FORWARD = "forward"
    #: waiting for what mid_process has not finished during the forward pass
    MID = "mid wait"
    #: splices, and applying rows to logits
    MASK = "mask"
    #: choosing tokens, and their log-probabilities
    SAMPLE = "sample"


ADDED = (Phase.POST, Phase.PRE, Phase.MID, Phase.MASK)


@dataclass(slots=True)
class StepStats:
    """Sums over all steps of an engine."""

    steps: int = 0
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    forks: int = 0

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the body to `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    @property
    def added_ms(self) -> float:
        """Milliseconds that control adds to a step, on average."""
        return 1000 * sum(self.seconds[phase] for phase in ADDED) / max(1, self.steps)
