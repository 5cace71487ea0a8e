"""Evaluates controllers on data: metrics, tokens and passes for each row and seed, with confidence intervals.

`aici eval` is the command of it. In a program::

    examples = read_examples("questions.jsonl")
    variant = Variant("controller", runtime.find("regex"), lambda data: "[0-9]+")
    with open_engine() as engine:
        outcomes = list(evaluate(engine, examples, variant, [find_metric("exact")]))
"""

from __future__ import annotations

from pyaici.evaluation.experiment import Example, Outcome, Variant, evaluate, read_examples
from pyaici.evaluation.metrics import Estimate, Metric, difference, find_metric, mean
from pyaici.evaluation.report import Report

__all__ = [
    "Estimate",
    "Example",
    "Metric",
    "Outcome",
    "Report",
    "Variant",
    "difference",
    "evaluate",
    "find_metric",
    "mean",
    "read_examples",
]
