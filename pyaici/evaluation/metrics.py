"""Metrics: how good an answer is, as a number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyaici.client.calls import run_file

#: of a row of the data and the answer to it, both as JSON has them
Judgement = Callable[[Mapping[str, Any], Mapping[str, Any]], float]


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
