"""The score by which workers are compared for placement."""

from __future__ import annotations

from typing import Any

import pytest

from aicirt.supervisor.workers import Load


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the clock by the value in the returned list, which the test changes."""
    time = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def stats(busy: float = 0.0, sequences: int = 0, asked: int = 0) -> dict[str, Any]:
    return {"busy": busy, "sequences": sequences, "asked": asked}


def place(loads: list[Load], count: int) -> list[int]:
    """Places `count` sequences and returns how many each load gets."""
    counts = [0] * len(loads)
    for _ in range(count):
        chosen = min(loads, key=lambda load: load.score)
        chosen.count_placement()
        counts[loads.index(chosen)] += 1
    return counts


def test_burst_spreads_evenly() -> None:
    assert place([Load() for _ in range(4)], 40) == [10] * 4


def test_burst_spreads_evenly_while_reports_arrive(now: list[float]) -> None:
    loads = [Load(), Load()]
    placed = [0, 0]
    for turn in range(12):
        for index, more in enumerate(place(loads, 3)):
            placed[index] += more
        index = turn % 2  # the other worker reports later
        loads[index].report(stats(0.02 * (turn % 3), placed[index], placed[index]))
        now[0] += 0.3
    assert abs(placed[0] - placed[1]) <= 1


def test_busy_worker_gets_no_sequences() -> None:
    loads = [Load(), Load()]
    loads[0].report(stats(0.9, sequences=1, asked=0))
    assert place(loads, 16) == [0, 16]


def test_idle_sequences_hardly_count_as_load() -> None:
    loads = [Load(), Load()]
    loads[0].report(stats(0.9, sequences=1))
    loads[1].report(stats(0.0, sequences=100))
    assert place(loads, 10) == [0, 10]


def test_large_burst_is_spread_over_unequal_workers() -> None:
    loads = [Load(), Load()]
    loads[0].report(stats(0.5, sequences=10))
    first, second = place(loads, 100)
    assert first > 30 and second > 50


def test_small_differences_in_busy_time_do_not_count(now: list[float]) -> None:
    loads = [Load(), Load()]
    loads[0].report(stats(0.08, sequences=2))
    loads[1].report(stats(0.01, sequences=3))
    assert loads[0].score < loads[1].score


def test_placements_that_never_start_are_forgotten(now: list[float]) -> None:
    load = Load()
    for _ in range(3):
        load.count_placement()
    load.report(stats(asked=1, sequences=1))
    assert load.coming == 2
    load.report(stats(asked=2, sequences=2))
    assert load.coming == 1, "one placed sequence has started since"
    load.report(stats(asked=2, sequences=2))
    assert load.coming == 0
    now[0] += 3
    assert load.score == pytest.approx(0.004)
    load.report(stats(asked=7, sequences=7))  # sequences of another client, started without a placement
    load.count_placement()
    assert load.coming == 1


def test_busy_is_at_most_one() -> None:
    load = Load()
    load.report(stats(busy=1e9))
    assert load.busy == 1.0
