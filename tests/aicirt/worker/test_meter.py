"""The busy share that a worker reports, measured with a clock that the test sets."""

from __future__ import annotations

import math

import pytest

from aicirt.worker.scheduling import Meter


class Clock:
    """Replaces the monotonic clock and the thread's CPU clock."""

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


def test_idle_worker_is_not_busy(clock: Clock) -> None:
    meter = Meter()
    clock.wait(10)
    assert meter.busy() == 0 and meter.cpu_seconds == 0


def test_busy_share_approaches_one_in_a_worker_that_always_works(clock: Clock) -> None:
    meter, seen = Meter(), []
    for _ in range(5):
        clock.work(meter, 1.0)
        seen.append(meter.busy())
    assert seen == pytest.approx([1 - math.exp(-n) for n in range(1, 6)])
    clock.wait(1)
    assert meter.busy() == pytest.approx(seen[-1] / math.e), "it decreases at the same rate"


def test_busy_share_does_not_depend_on_how_often_it_is_read(clock: Clock) -> None:
    one, often = Meter(), Meter()
    for _ in range(100):
        one.begin()
        clock.work(often, 0.006)
        one.end()
        clock.wait(0.014)
        often.busy()
    assert one.busy() == pytest.approx(often.busy(), abs=1e-6)
    assert one.busy() == pytest.approx(0.3 * (1 - math.exp(-2)), abs=0.001)


def test_reading_the_busy_share_twice_in_a_row_does_not_change_it(clock: Clock) -> None:
    meter = Meter()
    clock.work(meter, 1.0)
    before = meter.busy()
    assert meter.busy() == before
    clock.wait(0.001)
    assert meter.busy() == before


def test_waiting_for_a_processor_counts_as_busy(clock: Clock) -> None:
    meter = Meter()
    clock.work(meter, 4.0, cpu=1.0)
    assert meter.busy() > 0.9 and meter.cpu_seconds == 1.0
