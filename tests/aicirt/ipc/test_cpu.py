from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.ipc.ring import CpuPlacement, current_cpu
from aicirt.system.resources import take_short_turns

#: whether the kernel shows requested slices: kernels before 6.12 ignore requests, some builds lack the file
SHOWN = Path("/proc/self/sched").exists() and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12)


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """Returns the processors of this thread, and restores them after the test."""
    before = os.sched_getaffinity(0)
    yield set(before)
    os.sched_setaffinity(0, before)


def test_leave_moves_off_the_given_processors_and_restore_returns(allowed: set[int]) -> None:
    placement = CpuPlacement()
    for _ in range(20):
        here = current_cpu()
        placement.avoid_processors([here, -1, 100_000])
        assert os.sched_getaffinity(0) == (allowed - {here} or allowed)
        assert len(allowed) == 1 or current_cpu() != here
        placement.restore()
        assert os.sched_getaffinity(0) == allowed


def test_leaving_again_replaces_the_earlier_exclusion(allowed: set[int]) -> None:
    placement = CpuPlacement()
    for cpu in sorted(allowed):
        placement.avoid_processors([cpu])
    assert os.sched_getaffinity(0) == (allowed - {max(allowed)} or allowed)
    placement.restore()
    placement.restore()
    assert os.sched_getaffinity(0) == allowed


def test_leave_keeps_the_affinity_if_no_processor_would_remain(allowed: set[int]) -> None:
    placement = CpuPlacement()
    placement.avoid_processors(allowed)
    assert os.sched_getaffinity(0) == allowed
    placement.avoid_processors([])
    assert os.sched_getaffinity(0) == allowed


def test_restore_keeps_an_affinity_that_was_set_meanwhile(allowed: set[int]) -> None:
    if len(allowed) < 2:
        pytest.skip("needs two processors, to exclude one")
    placement = CpuPlacement()
    placement.avoid_processors([max(allowed)])
    os.sched_setaffinity(0, {max(allowed)})
    placement.restore()
    assert os.sched_getaffinity(0) == {max(allowed)}


def requested_slice() -> int:
    """Returns the scheduler slice that the kernel has noted for this thread, in ns."""
    if not SHOWN:
        return 500_000
    lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
    return next(round(float(line.split(":")[1])) for line in lines if line.startswith("se.slice"))


def test_short_turns_apply_to_a_thread_and_its_child_threads() -> None:
    found: list[int] = []

    def work() -> None:
        assert take_short_turns(0.0005)
        found.append(requested_slice())
        child = threading.Thread(target=lambda: found.append(requested_slice()))
        child.start()
        child.join()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [500_000, 500_000]


def test_give_way_never_raises_the_priority_again() -> None:
    code = "from aicirt.system.resources import give_way, os; give_way(12); give_way(11); print(os.nice(0))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == f"{max(12, os.nice(0))}\n"
