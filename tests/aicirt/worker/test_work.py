"""Owners take turns in a worker, however much work each has."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from aicirt.worker.scheduling import Agenda


class Job:
    """A task of `slices` slices, which records its owner in `turns` at each slice."""

    def __init__(self, owner: str, turns: list[str], slices: int = 10**9, seconds: float = 0.0) -> None:
        self.owner = owner
        self._turns = turns
        self._left = slices
        self._seconds = seconds

    def run(self) -> bool:
        self._turns.append(self.owner)
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        self._left -= 1
        return self._left == 0


class Failing(Job):
    def run(self) -> bool:
        super().run()
        raise ZeroDivisionError


def test_owner_with_much_work_gets_no_more_turns_than_another() -> None:
    agenda, turns = Agenda(), []
    for _ in range(1000):
        agenda.add(Job("many", turns))
    agenda.add(Job("one", turns, slices=20))
    for _ in range(39):
        agenda.run_slice()
    assert Counter(turns) == {"many": 20, "one": 19}
    agenda.add(Job("late", turns))
    for _ in range(3):
        agenda.run_slice()
    assert "late" in turns[-3:]


def test_tasks_of_one_owner_are_served_round_robin() -> None:
    agenda, turns = Agenda(), []
    jobs = [Job("a", turns, slices=2) for _ in range(3)]
    for job in jobs:
        agenda.add(job)
    for _ in range(4):
        agenda.run_slice()
    assert [job._left for job in jobs] == [0, 1, 1]
    for _ in range(2):
        agenda.run_slice()
    assert not agenda


def test_owner_whose_slices_take_longer_gets_fewer_turns() -> None:
    """A slice can take 20 ms, since host functions cannot be interrupted."""
    agenda, turns = Agenda(), []
    agenda.add(Job("slow", turns, seconds=0.02))
    agenda.add(Job("quick", turns, seconds=0.002))
    for _ in range(110):
        agenda.run_slice()
    assert 8 <= Counter(turns)["slow"] <= 14


def test_long_slices_have_no_cost_while_no_other_owner_waits() -> None:
    agenda, turns = Agenda(), []
    agenda.add(Job("slow", turns, slices=5, seconds=0.01))
    for _ in range(5):
        agenda.run_slice()
    assert not agenda and turns == ["slow"] * 5


def test_idle_tasks_run_only_without_other_tasks_and_owners_take_turns() -> None:
    agenda, turns = Agenda(), []
    for _ in range(100):
        agenda.when_idle(Job("idle many", turns))
    agenda.when_idle(Job("idle one", turns, slices=3))
    agenda.add(Job("urgent", turns, slices=4))
    for _ in range(10):
        agenda.run_slice()
    assert turns[:4] == ["urgent"] * 4
    assert Counter(turns[4:]) == {"idle many": 3, "idle one": 3}


def test_task_that_fails_is_dropped_and_others_go_on() -> None:
    agenda, turns = Agenda(), []
    agenda.add(Failing("a", turns))
    agenda.add(Job("a", turns, slices=1))
    agenda.add(Job("b", turns, slices=1))
    with pytest.raises(ZeroDivisionError):
        agenda.run_slice()
    while agenda:
        agenda.run_slice()
    assert turns == ["a", "b", "a"]


def test_first_slice_of_a_started_task_runs_at_once() -> None:
    agenda, turns = Agenda(), []
    agenda.add(Job("a", turns))
    agenda.start_task(Job("b", turns, slices=1))
    agenda.start_task(Job("c", turns, slices=2))
    assert turns == ["b", "c"]
    agenda.run_slice()
    agenda.run_slice()
    assert turns == ["b", "c", "a", "c"]
