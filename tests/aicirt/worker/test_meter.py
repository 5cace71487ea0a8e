"""How busy a worker says it is, by a clock that the test sets."""

from __future__ import annotations

import math

import pytest

from aicirt.worker.scheduling import Meter


class Clock:
    """Of the machine, and of the processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.cpu = 5_000_000_000
        monkeypatch.setattr("time.monotonic_ns", lambda: self.now)
        monkeypatch.setattr("time.thread_time_ns", lambda: self.cpu)

    def work(self, meter: Meter, seconds: float, cpu: float | None = None) -> None:
        meter.begin()
        self.wait(seconds)
        self.cpu += int(1e9 * (seconds if cpu is None else cpu))
        meter.end()

    def wait(self, seconds: float) -> None:
        self.now += int(1e9 * seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_an_idle_worker_is_not_busy(clock: Clock) -> None:
    meter = Meter()
    clock.wait(10)
    assert meter.busy() == 0 and meter.cpu_seconds == 0


def test_a_worker_that_only_works_gets_as_busy_as_can_be(clock: Clock) -> None:
    meter, seen = Meter(), []
    for _ in range(5):
        clock.work(meter, 1.0)
        seen.append(meter.busy())
    assert seen == pytest.approx([1 - math.exp(-n) for n in range(1, 6)])
    clock.wait(1)
    assert meter.busy() == pytest.approx(seen[-1] / math.e), "and is forgotten as soon"


def test_the_average_does_not_depend_on_how_often_it_is_asked_for(clock: Clock) -> None:
    one, often = Meter(), Meter()
    for _ in range(100):
        one.begin()
        clock.work(often, 0.006)
        one.end()
        clock.wait(0.014)
        often.busy()
    assert one.busy() == pytest.approx(often.busy(), abs=1e-6)
    assert one.busy() == pytest.approx(0.3 * (1 - math.exp(-2)), abs=0.001)


def test_two_looks_at_once_do_not_make_one_of_nothing(clock: Clock) -> None:
    meter = Meter()
    clock.work(meter, 1.0)
    before = meter.busy()
    assert meter.busy() == before
    clock.wait(0.001)
    assert meter.busy() == before


def test_who_waits_for_a_processor_is_busy(clock: Clock) -> None:
    meter = Meter()
    clock.work(meter, 4.0, cpu=1.0)
    assert meter.busy() > 0.9 and meter.cpu_seconds == 1.0
