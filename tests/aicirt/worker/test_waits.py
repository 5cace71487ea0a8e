"""Waiting sequences: who is woken, and when requests are stuck, compared with what the conditions say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aicirt.contract.abi import CALL_RESULT
from aicirt.contract.errors import AiciError, CallLimitError, OwnerLimitError
from aicirt.settings import RequestLimits
from aicirt.worker import waits
from aicirt.worker.owners import RequestState
from aicirt.worker.waits import CallDesk, Condition, RequestCalls, Waiting, Waits

NAMES = [b"a", b"b", CALL_RESULT + b"1", CALL_RESULT + b"2"]


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Sleeper:
    """A sequence that may wait; it remembers how it ended."""

    def __init__(self, number: int, request: RequestState) -> None:
        self.id = number
        self.waiting: Waiting | None = None
        self.request = request
        self.error: AiciError | None = None

    def end(self, error: AiciError) -> None:
        self.error = error
        self.request.waits.wake(self)


class Room:
    """A request with some sequences, in a worker of its own."""

    def __init__(self, count: int, **limits: Any) -> None:
        self.waits, self.woken, self.desk = Waits(), list[int](), CallDesk()
        self.request = RequestState(RequestLimits(**limits), None, None, self.waits, self.woken)
        self.request.live = count
        self.request.allow_calls(self.desk, "token")
        self.sleepers = [Sleeper(number, self.request) for number in range(count)]

    @property
    def calls(self) -> RequestCalls:
        assert self.request.calls is not None
        return self.request.calls

    def take_woken(self) -> set[int]:
        """Does what a worker does at the end of a round; returns the sequences that the client hears of."""
        self.waits.pass_time()
        self.waits.settle()
        found = set(self.woken)
        self.woken.clear()
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waits, "time", clock)
    return clock


@pytest.mark.parametrize("seed", range(40))
def test_those_are_woken_whose_conditions_hold(clock: Clock, seed: int) -> None:
    """Random waits, writes, calls, answers and times. Each waits as long as none of its conditions holds."""
    choose = random.Random(seed)
    room = Room(4)
    made = 0
    for _ in range(200):
        awake = [one for one in room.sleepers if one.waiting is None and one.error is None]
        if not awake and choose.random() < 0.5:
            clock.now += choose.choice([0.1, 1.0, 5.0])
        elif awake and choose.random() < 0.6:
            _act(choose, choose.choice(awake), room)
        elif (under_way := sorted(room.calls.under_way)) and choose.random() < 0.7:
            room.calls.arrive(choose.choice(under_way), b"{}")
        elif made < 2:
            made = room.calls.make("x", b"")
        before = {one.id: one.waiting for one in room.sleepers}
        told = room.take_woken()
        _check(room, clock, before, told)


def _act(choose: random.Random, one: Sleeper, room: Room) -> None:
    """A sequence writes a variable, or begins to wait."""
    variables = room.request.variables
    if choose.random() < 0.4:
        variables.set(choose.choice(NAMES[:2]), b"x")
        return
    names = choose.sample(NAMES, choose.randrange(3))
    conditions = [Condition(name, variables.version(name) - choose.randrange(2)) for name in names]
    until = clock_after(choose)
    holds = any(variables.version(name) > version for name, version in conditions)
    waits_ = room.waits.park(one, Waiting(conditions, until))  # type: ignore[arg-type]
    assert waits_ == (not holds and bool(conditions or until))


def clock_after(choose: random.Random) -> float | None:
    """Returns a time to wait for, or none."""
    return None if choose.random() < 0.6 else waits.time.monotonic() + choose.choice([0.5, 3.0])


def _check(room: Room, clock: Clock, before: dict[int, Waiting | None], told: set[int]) -> None:
    variables = room.request.variables
    stuck = [one for one in room.sleepers if one.error is not None]
    if stuck:
        assert len(stuck) == len(room.sleepers) and not room.calls.pending
        assert all(waiting is None or waiting.until is None for waiting in before.values())
        for one in room.sleepers:  # a new attempt for the rest of the test
            one.error = None
        return
    for one in room.sleepers:
        waiting = before[one.id]
        if waiting is None:
            continue
        due = waiting.until is not None and waiting.until <= clock.now
        holds = any(variables.version(name) > version for name, version in waiting.conditions)
        assert (one.waiting is None) == (due or holds) == (one.id in told)
    if all(one.waiting is not None for one in room.sleepers):
        assert room.calls.pending or any(one.waiting and one.waiting.until for one in room.sleepers)


def test_ended_waits_leave_no_timers_behind(clock: Clock) -> None:
    """A sequence that is woken early each time would otherwise leave a timer for each of its waits."""
    room = Room(1)
    (one,) = room.sleepers
    for _ in range(1000):
        assert room.waits.park(one, Waiting([Condition(b"a", room.request.variables.version(b"a"))], 1e9))  # type: ignore[arg-type]
        room.request.variables.set(b"a", b"")
        assert room.take_woken() == {0}
    assert len(room.waits.timers) < 100
    assert not room.request.variables.watchers


def test_the_end_of_a_sequence_may_leave_the_others_stuck(clock: Clock) -> None:
    room = Room(2)
    first, second = room.sleepers
    assert room.waits.park(first, Waiting([Condition(b"a", 0)], None))  # type: ignore[arg-type]
    assert room.take_woken() == set() and first.error is None
    room.request.left(by_engine=False)
    assert room.take_woken() == {0}
    assert first.error is not None and first.error.code == "deadlock"
    assert second.error is None


def test_a_follower_of_a_sequence_that_waits_for_something_else_leaves_it_stuck(clock: Clock) -> None:
    room = Room(2)
    leader, follower = room.sleepers
    assert room.waits.park(leader, Waiting([Condition(b"a", 0)], None))  # type: ignore[arg-type]
    assert room.take_woken() == set()
    room.waits.begin_following(follower)  # type: ignore[arg-type]
    assert room.take_woken() == {0, 1}
    assert leader.error is not None and leader.error.code == "deadlock"


def test_queued_arguments_are_charged_until_they_are_sent(clock: Clock) -> None:
    charged = [0]

    def charge(more: int) -> None:
        if charged[0] + more > 250:
            raise OwnerLimitError("too much")
        charged[0] += more

    limits = RequestLimits(calls_under_way=1, max_queued_call_bytes=1000)
    delivered: list[bytes] = []
    desk = CallDesk()
    calls = RequestCalls(desk, "token", limits, lambda name, _: delivered.append(name), charge)
    for _ in range(3):
        calls.make("x", bytes(100))
    assert (charged[0], len(desk.news)) == (200, 1)
    with pytest.raises(OwnerLimitError):
        calls.make("x", bytes(100))
    calls.arrive(1, b"")
    assert (charged[0], len(desk.news), delivered) == (100, 2, [CALL_RESULT + b"1"])
    with pytest.raises(CallLimitError):
        calls.make("x", bytes(2000))
    calls.close()
    assert charged == [0]
    assert desk.news[-1][1] == 0, "the supervisor hears that the request has ended"
