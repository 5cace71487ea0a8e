"""Timing of contestants that alternate in one run, and statistics of their samples."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Statistics of samples, in their unit."""

    count: int
    median: float
    p99: float
    mean: float
    minimum: float
    maximum: float


def percentile(samples: Sequence[float], percent: float) -> float:
    """Returns the value that `percent` of the samples do not exceed, by linear interpolation.

    Raises ValueError if there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(samples: Sequence[float]) -> Summary:
    """Returns the statistics of samples. Raises ValueError if there are none."""
    return Summary(
        len(samples),
        percentile(samples, 50),
        percentile(samples, 99),
        sum(samples) / len(samples),
        min(samples),
        max(samples),
    )


def alternate(
    contestants: Mapping[str, Callable[[], float | None]], rounds: int, *, warmup: int = 1
) -> dict[str, list[float]]:
    """Runs every contestant once a round and returns `rounds` samples of each.

    A sample is the number that the contestant returns (it times itself, in any unit), or else the seconds
    that its call took. A different contestant begins each round, so that other load on the machine affects
    all of them equally. Python's garbage collector runs only between rounds, and leaves out older objects:
    with the modules of torch it would take half a second.
    """
    names = list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        for number in range(-warmup, rounds):
            gc.collect()
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                start = time.perf_counter()
                own = contestants[name]()
                taken = time.perf_counter() - start
                if number >= 0:
                    samples[name].append(taken if own is None else own)
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()
    return samples


def paired_interval(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median of ``one - other`` over paired samples and its 95 % confidence interval (low, high).

    The interval is the pair of order statistics given by the binomial distribution of the sign test, which
    assumes nothing about the distribution of the noise. Raises ValueError if the numbers of samples differ or
    are below six.
    """
    if len(ones) != len(others) or len(ones) < 6:
        raise ValueError(f"at least six pairs are needed: got {len(ones)} and {len(others)} samples")
    differences = sorted(a - b for a, b in zip(ones, others, strict=True))
    count = len(differences)
    below, rank = 0.0, 0
    # the largest rank r with P(fewer than r of n fall below the median) <= 2.5 %
    while (below := below + math.comb(count, rank) * 0.5**count) <= 0.025:
        rank += 1
    return percentile(differences, 50), differences[rank - 1], differences[count - rank]
