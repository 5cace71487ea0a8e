"""Statistics of samples, and contestants that alternate."""

from __future__ import annotations

import random

import pytest

from lab.measurement.timing import alternate, paired_interval, percentile, summarise


def test_percentile_interpolates() -> None:
    assert percentile([3.0], 99) == 3.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile(range(101), 99) == 99
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_summary() -> None:
    summary = summarise([1.0, 2.0, 6.0])
    assert (summary.count, summary.median, summary.mean, summary.minimum, summary.maximum) == (
        3,
        2.0,
        3.0,
        1.0,
        6.0,
    )
    assert summary.p99 == pytest.approx(5.92)


def test_contestants_alternate_and_each_round_begins_with_another() -> None:
    order: list[str] = []
    contestants = {name: lambda name=name: order.append(name) for name in "abc"}
    samples = alternate(contestants, 3, warmup=1)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3, "c": 3}
    assert all(value >= 0 for values in samples.values() for value in values)


def test_contestant_may_time_itself() -> None:
    values = iter([9.0, 1.0, 2.0])
    assert alternate({"own": lambda: next(values)}, 2) == {"own": [1.0, 2.0]}


def test_interval_of_six_pairs_is_their_range() -> None:
    ones = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert paired_interval(ones, [0.0] * 6) == (3.5, 1.0, 6.0)
    with pytest.raises(ValueError, match="at least six"):
        paired_interval(ones[:5], [0.0] * 5)


def test_interval_covers_the_true_difference_in_95_percent() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(1000):
        shifted = [draw.expovariate(1) + 0.2 for _ in range(20)]
        _, low, high = paired_interval(shifted, [draw.expovariate(1) for _ in range(20)])
        covered += low <= 0.2 <= high
    assert 940 <= covered <= 990
