from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.ipc.cpu import Placement, current_cpu, take_short_turns

#: kernels before 6.12 accept the wish and do nothing; some builds do not tell
TELLS = Path("/proc/self/sched").exists() and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12)


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


def wish() -> int:
    """What the kernel has noted for this thread, ns."""
    if not TELLS:
        return 500_000
    lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
    return next(round(float(line.split(":")[1])) for line in lines if line.startswith("se.slice"))


def test_a_thread_and_those_that_it_makes_have_short_turns() -> None:
    found: list[int] = []

    def work() -> None:
        assert take_short_turns(0.0005)
        found.append(wish())
        child = threading.Thread(target=lambda: found.append(wish()))
        child.start()
        child.join()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [500_000, 500_000]


def test_whoever_gives_way_does_not_come_back() -> None:
    code = "import os; from aicirt.ipc.cpu import give_way; give_way(12); give_way(11); print(os.nice(0))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "12\n"
