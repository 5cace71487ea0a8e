"""Means over rows with confidence intervals, and differences of two runs over the same rows.

The rows are the sample: a row's seeds are not independent of each other, so each row counts with the mean of
its seeds, and the bootstrap draws rows. Its intervals are those of percentiles (Efron and Tibshirani, 1993).
With fewer than some 20 rows they are too narrow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: what a confidence interval contains
LEVEL = 0.95
_RESAMPLES = 4000
#: numbers that are drawn at a time
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with the ends of its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def worse(self) -> bool:
        """Whether a difference is below 0 with all of its interval."""
        return self.high < 0


def by_row(results: Iterable[Mapping[str, Any]], variant: str, name: str) -> dict[str, float]:
    """Returns the mean of the seeds for each row. `name`: a metric's, or that of another field."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for result in results:
        if result["variant"] == variant:
            value = result["metrics"][name] if name in result.get("metrics", ()) else result[name]
            values[result["id"]].append(float(value))
    return {row: float(np.mean(found)) for row, found in values.items()}


def mean(values: Sequence[float]) -> Estimate:
    """Returns the mean of the rows' values. The same values give the same interval.

    Raises ValueError if there are none.
    """
    if not values:
        raise ValueError("there are no values to estimate a mean from")
    sample = np.array(values, np.float64)
    low, high = np.quantile(_resampled_means(sample), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(sample.mean()), float(low), float(high))


def difference(new: Mapping[str, float], old: Mapping[str, float]) -> Estimate:
    """Returns the mean difference over the rows that both have: a paired bootstrap.

    Raises ValueError if there are no such rows.
    """
    shared = [row for row in new if row in old]
    if not shared:
        raise ValueError("the two runs have no row in common: were they made from the same data?")
    return mean([new[row] - old[row] for row in shared])


def _resampled_means(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the means of `_RESAMPLES` samples of the same size, drawn with replacement: float64."""
    generator = np.random.default_rng(0)
    size = max(1, _CHUNK // len(sample))
    parts = [
        sample[generator.integers(len(sample), size=(min(size, _RESAMPLES - done), len(sample)))].mean(axis=1)
        for done in range(0, _RESAMPLES, size)
    ]
    return np.concatenate(parts)
