"""The chi-square test: its p-values compared with closed forms, and for fair and unfair counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.measurement.chi_square import p_value, survival


@pytest.mark.parametrize("statistic", [0.01, 0.5, 1.0, 3.0, 10.0, 50.0, 200.0])
def test_survival_equals_closed_forms(statistic: float) -> None:
    half = statistic / 2
    assert survival(statistic, 1) == pytest.approx(math.erfc(math.sqrt(half)), rel=1e-9, abs=1e-15)
    assert survival(statistic, 2) == pytest.approx(math.exp(-half), rel=1e-9)
    poisson = sum(math.exp(-half + k * math.log(half) - math.lgamma(k + 1)) for k in range(10))
    assert survival(statistic, 20) == pytest.approx(poisson, rel=1e-8)


def test_p_values_are_uniform_for_fair_counts_and_small_for_others() -> None:
    probabilities = {0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05}
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):
        counts = dict(enumerate(rng.multinomial(1000, list(probabilities.values())).tolist()))
        values.append(p_value(counts, probabilities))
    assert abs(np.mean(values) - 0.5) < 0.05 and abs(np.mean(np.array(values) < 0.1) - 0.1) < 0.05
    assert p_value({0: 450, 1: 350, 2: 150, 3: 50}, probabilities) < 0.005
    assert p_value({0: 999, "other": 1}, probabilities) == 0.0


def test_unlikely_categories_are_merged() -> None:
    probabilities = dict.fromkeys(range(100), 0.001) | {"much": 0.9}
    counts = {"much": 900} | dict.fromkeys(range(100), 1)
    assert p_value(counts, probabilities) == pytest.approx(1.0)
    assert p_value({"much": 900, 0: 100}, probabilities) == pytest.approx(1.0), "the rest is one category"
    assert p_value({"much": 900, 0: 100}, {0: 0.02, 1: 0.08, "much": 0.9}) < 1e-9
