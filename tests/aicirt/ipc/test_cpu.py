from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aicirt.ipc.cpu import Placement, current_cpu


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The processors of this thread, which it has again afterwards."""
    before = os.sched_getaffinity(0)
    yield set(before)
    os.sched_setaffinity(0, before)


def test_one_leaves_the_processors_of_others_and_comes_back(allowed: set[int]) -> None:
    placement = Placement()
    for _ in range(20):
        here = current_cpu()
        placement.leave([here, -1, 100_000])
        assert os.sched_getaffinity(0) == (allowed - {here} or allowed)
        assert len(allowed) == 1 or current_cpu() != here
        placement.restore()
        assert os.sched_getaffinity(0) == allowed


def test_leaving_twice_forgets_the_first(allowed: set[int]) -> None:
    placement = Placement()
    for cpu in sorted(allowed):
        placement.leave([cpu])
    assert os.sched_getaffinity(0) == (allowed - {max(allowed)} or allowed)
    placement.restore()
    placement.restore()
    assert os.sched_getaffinity(0) == allowed


def test_where_there_is_nowhere_to_go_nothing_changes(allowed: set[int]) -> None:
    placement = Placement()
    placement.leave(allowed)
    assert os.sched_getaffinity(0) == allowed
    placement.leave([])
    assert os.sched_getaffinity(0) == allowed


def test_what_somebody_else_decided_meanwhile_stays(allowed: set[int]) -> None:
    if len(allowed) < 2:
        return  # nothing can be left, and nothing decided
    placement = Placement()
    placement.leave([max(allowed)])
    os.sched_setaffinity(0, {max(allowed)})
    placement.restore()
    assert os.sched_getaffinity(0) == {max(allowed)}
