"""Measures the time of each phase of the engine's steps."""

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
    """Phases of a step, in order. Control adds all of them except FORWARD and SAMPLE."""

    #: posting the reports of the last step to the runtime
    POST = "post"
    #: waiting for post_process and pre_process (the critical path)
    PRE = "pre wait"
    #: launching the model; CUDA runs it asynchronously, so its time counts where its result is first read
    FORWARD = "forward"
    #: waiting for the part of mid_process that did not finish during the forward pass
    MID = "mid wait"
    #: splices, and applying rows to logits
    MASK = "mask"
    #: choosing tokens and computing their log-probabilities
    SAMPLE = "sample"


ADDED = (Phase.POST, Phase.PRE, Phase.MID, Phase.MASK)
#: Number of steps whose times are kept individually, for medians.
RECENT_STEPS = 1024


@dataclass(slots=True)
class StepStats(Counts):
    """Counts and times of the steps of an engine."""

    #: tokens that the cache had, so that they were not fed: of prompts and of sequences for `next_logits`
    reused: int = 0
    #: sums over all steps
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(Phase, 0.0))
    #: one entry for each of the last `RECENT_STEPS` steps, the current one included
    recent: deque[dict[Phase, float]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))

    @property
    def last_control_seconds(self) -> float | None:
        """See `Counts.last_control_seconds`."""
        return sum(self.recent[-1][phase] for phase in ADDED) if self.recent else None

    def begin_step(self) -> None:
        """Begins a new step; later times count towards it."""
        self.steps += 1
        self.recent.append(dict.fromkeys(Phase, 0.0))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the `with` body to `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[phase] += seconds
            self.recent[-1][phase] += seconds

    def median_ms(self, phases: Iterable[Phase]) -> float:
        """Returns the median time of these phases together over the recent steps, in milliseconds."""
        phases = tuple(phases)
        sums = [sum(step[phase] for phase in phases) for step in self.recent]
        return 1000 * median(sums) if sums else 0.0

    def mean_ms(self, phases: Iterable[Phase]) -> float:
        """Returns the mean time of these phases together over all steps, in milliseconds."""
        return 1000 * sum(self.seconds[phase] for phase in phases) / max(1, self.steps)

    def table(self) -> Table:
        """Returns a table of the milliseconds per step of each phase and of the phases that control adds."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("ms per step")
        for phase in Phase:
            table.add_column(phase.value, justify="right")
        table.add_column("added by control", justify="right")
        groups = [*((phase,) for phase in Phase), ADDED]
        table.add_row("median", *(f"{self.median_ms(group):.3f}" for group in groups))
        table.add_row("mean", *(f"{self.mean_ms(group):.3f}" for group in groups))
        return table
