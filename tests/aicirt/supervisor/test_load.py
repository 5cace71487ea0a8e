"""By what workers are compared."""

from __future__ import annotations

from typing import Any

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.supervisor.balance import Load


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock shows, for the test to set."""
    time = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def told(busy: float = 0.0, sequences: int = 0, asked: int = 0) -> dict[str, Any]:
    return {"busy": busy, "sequences": sequences, "asked": asked, "clients": {1: sequences}}


def place(loads: list[Load], count: int) -> list[int]:
    """How many of a burst each gets."""
    counts = [0] * len(loads)
    for _ in range(count):
        chosen = min(loads, key=lambda load: load.score)
        chosen.place()
        counts[loads.index(chosen)] += 1
    return counts


def test_a_burst_spreads_evenly() -> None:
    assert place([Load() for _ in range(4)], 40) == [10] * 4


def test_it_does_so_when_reports_come_in_the_middle(now: list[float]) -> None:
    loads = [Load(), Load()]
    placed = [0, 0]
    for turn in range(12):
        for index, more in enumerate(place(loads, 3)):
            placed[index] += more
        index = turn % 2  # the other one tells later
        loads[index].report(told(0.02 * (turn % 3), placed[index], placed[index]))
        now[0] += 0.3
    assert abs(placed[0] - placed[1]) <= 1


def test_it_goes_where_there_is_time() -> None:
    loads = [Load(), Load()]
    loads[0].report(told(0.9, sequences=1, asked=0))
    assert place(loads, 16) == [0, 16]


def test_many_idle_sequences_are_no_load() -> None:
    loads = [Load(), Load()]
    loads[0].report(told(0.9, sequences=1))
    loads[1].report(told(0.0, sequences=100))
    assert place(loads, 10) == [0, 10]


def test_a_large_burst_does_not_all_go_to_one() -> None:
    loads = [Load(), Load()]
    loads[0].report(told(0.5, sequences=10))
    first, second = place(loads, 100)
    assert first > 30 and second > 50


def test_small_differences_say_nothing(now: list[float]) -> None:
    loads = [Load(), Load()]
    loads[0].report(told(0.08, sequences=2))
    loads[1].report(told(0.01, sequences=3))
    assert loads[0].score < loads[1].score


def test_what_was_placed_and_never_started_is_forgotten(now: list[float]) -> None:
    load = Load()
    for _ in range(3):
        load.place()
    load.report(told(asked=1, sequences=1))
    assert load.coming == 2
    load.report(told(asked=2, sequences=2))
    assert load.coming == 1, "one of them has started since"
    load.report(told(asked=2, sequences=2))
    assert load.coming == 0
    now[0] += 3
    assert load.score == pytest.approx(0.004)
    load.report(told(asked=7, sequences=7))  # another client's, that was placed by nobody
    load.place()
    assert load.coming == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(None, [], {}, 5, {"sequences": 1}, told() | {"busy": "x"}, told() | {"busy": None}),
        *(told() | {"busy": float("nan")}, told() | {"sequences": 1.5}, told() | {"asked": "1"}),
        *(told() | {"clients": None}, told() | {"clients": {"x": 1}}),
    ],
)
def test_an_answer_that_is_none(answer: Any) -> None:
    with pytest.raises(ProtocolError, match="no answer to a ping"):
        Load().report(answer)


def test_nobody_is_busier_than_busy() -> None:
    load = Load()
    load.report(told(busy=1e9))
    assert load.busy == 1.0
    load.report(told(busy=-5.0))
    assert load.busy == 0.0
