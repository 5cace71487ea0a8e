"""Measures where the time of the steps goes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from rich.table import Table

from pyaici.engines.engine import Counts


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
#: Steps whose times are kept one by one, for medians.
RECENT_STEPS = 1024


@dataclass(slots=True)
class StepStats(Counts):
    """Counts and times of the steps of an engine."""

    #: tokens of prompts, and of sequences whose logits were asked for, that the cache had: they were not fed
    reused: int = 0
    #: sums over all steps
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    #: one entry for each of the last steps, the present one included
    recent: deque[dict[Phase, float]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))

    def begin_step(self) -> None:
        """Begins a new step, to which later times belong."""
        self.steps += 1
        self.recent.append(dict.fromkeys(Phase, 0.0))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the body to `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[phase] += seconds
            self.recent[-1][phase] += seconds

    def median_ms(self, phases: Iterable[Phase]) -> float:
        """Median over the recent steps of the time of these phases together, milliseconds."""
        phases = tuple(phases)
        sums = [sum(step[phase] for phase in phases) for step in self.recent]
        return 1000 * median(sums) if sums else 0.0

    def mean_ms(self, phases: Iterable[Phase]) -> float:
        """Mean over all steps of the time of these phases together, milliseconds."""
        return 1000 * sum(self.seconds[phase] for phase in phases) / max(1, self.steps)

    def table(self) -> Table:
        """For people: milliseconds per step of each phase, and of what control adds."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("ms per step")
        for phase in Phase:
            table.add_column(phase.value, justify="right")
        table.add_column("added by control", justify="right")
        groups = [*((phase,) for phase in Phase), ADDED]
        table.add_row("median", *(f"{self.median_ms(group):.3f}" for group in groups))
        table.add_row("mean", *(f"{self.mean_ms(group):.3f}" for group in groups))
        return table
