"""Metrics: how good an answer is, as a number; means of them with confidence intervals, and differences.

The rows are the sample: a row's seeds are not independent of each other, so each row counts with the mean of
its seeds, and the bootstrap draws rows. Its intervals are those of percentiles (Efron and Tibshirani, 1993).
With fewer than some 20 rows they are too narrow.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyaici.client.calls import run_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: of a row of the data and the answer to it, both as JSON has them
Judgement = Callable[[Mapping[str, Any], Mapping[str, Any]], float]
#: what a confidence interval contains
LEVEL = 0.95
_RESAMPLES = 4000
#: numbers that are drawn at a time
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its name."""

    name: str
    judge: Judgement
    #: whether a higher value is better, so that a lower one is a regression
    directed: bool = True

    def __call__(self, data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
        """Returns the value for an answer; 0 if a sequence ended with an error.

        `answer`: `text`, `variables`, `finish_reason`, `error`, `sampled` and the other fields of a result.
        Raises ValueError if the metric fails or returns no number.
        """
        if answer["error"] is not None and self.directed:
            return 0.0
        try:
            return float(self.judge(data, answer))
        except Exception as error:
            raise ValueError(
                f"the metric {self.name} failed for the row {json.dumps(data)[:200]}: "
                f"{type(error).__name__}: {error}"
            ) from error


def find_metric(name: str) -> Metric:
    """Returns a metric: one of `METRICS`, or FILE.py:FUNCTION, a function of the row and the answer.

    Raises ValueError if there is none of this name.
    """
    path, colon, function = name.rpartition(":")
    if not colon:
        if name not in METRICS:
            raise ValueError(
                f"there is no metric {name!r}: the metrics are {', '.join(METRICS)}, and FILE.py:FUNCTION "
                "for your own, a function(row, result) that returns a number"
            )
        return METRICS[name]
    try:
        found = run_file(path, "metrics").get(function)
    except OSError as error:
        raise ValueError(f"cannot read the metric's file {path}: {error.strerror}") from None
    if not callable(found):
        raise ValueError(f"{path} has no function {function}")
    return Metric(function, found)


def _exact(data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    text = answer["text"].strip()
    return any(text == str(one).strip() for one in _expected(data))


def _contains(data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    return any(str(one) in answer["text"] for one in _expected(data))


def _regex(data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    return any(re.search(str(one), answer["text"]) for one in _expected(data))


def _json(data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    try:
        found = json.loads(answer["text"])
    except (ValueError, RecursionError):  # a controller may write anything
        return 0.0
    return _equal(found, data["expected"])


def _equal(a: Any, b: Any) -> bool:
    """Returns whether two values are equal as JSON: there, 1 equals 1.0, but true is no number."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(value, b[name]) for name, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _length(data: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    return len(answer["text"])


def _expected(data: Mapping[str, Any]) -> list[Any]:
    """Returns the answers that count: a list has several."""
    expected = data["expected"]
    return expected if isinstance(expected, list) else [expected]


METRICS = {
    "exact": Metric("exact", _exact),
    "contains": Metric("contains", _contains),
    "regex": Metric("regex", _regex),
    "json": Metric("json", _json),
    "length": Metric("length", _length, directed=False),
}


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
