"""Pearson's chi-square test: whether counts agree with probabilities. The p-value needs no other package."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

#: categories with a smaller expected count are merged into one
MIN_EXPECTED = 20.0


def survival(statistic: float, freedom: int) -> float:
    """Returns P(X >= statistic) for a chi-square X with `freedom` degrees of freedom.

    This is the regularised upper incomplete gamma function: the series and the continued fraction of
    Abramowitz and Stegun, 6.5.29 and 6.5.31, the latter by Lentz's method.
    """
    a, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return 1 - total * scale
    b = x + 1 - a
    c, d = math.inf, 1 / b
    fraction = d
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return fraction * scale


def p_value(
    counts: Mapping[Hashable, int],
    probabilities: Mapping[Hashable, float],
    min_expected: float = MIN_EXPECTED,
    most: int | None = None,
) -> float:
    """Returns the probability of counts at least as far from `probabilities` as these.

    The probabilities add up to 1. The test distinguishes the `most` likeliest categories, as far as their
    expected count is at least `min_expected`, and merges the others into one. Returns 0 if a category without
    probability was counted.
    """
    if any(count and probabilities.get(category, 0.0) <= 0 for category, count in counts.items()):
        return 0.0
    total = sum(counts.values())
    ranked = sorted(probabilities, key=lambda category: -probabilities[category])[:most]
    apart = [category for category in ranked if total * probabilities[category] >= min_expected]
    observed = [counts.get(category, 0) for category in apart]
    expected = [total * probabilities[category] for category in apart]
    rest = 1 - sum(probabilities[category] for category in apart)
    if total * rest >= 5:
        observed.append(total - sum(observed))
        expected.append(total * rest)
    if len(expected) < 2:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return survival(statistic, len(expected) - 1)
