"""A plugin of pytest that logs the processor seconds of each test, and compiles files of tests once.

With `AICI_DURATIONS=FILE`, each process of pytest appends a line to FILE for each phase of a test, and one
for the yardstick at least once a minute. `python -m tests.durations --write FILE` reads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.system.forked import parents
from tests.durations import yardstick

#: seconds between two measurements of the yardstick, which changes with the load of the machine
_YARDSTICK_S = 60.0
_measured = -_YARDSTICK_S


def processor_seconds() -> float:
    """Returns the processor seconds of this process and of children that have ended, also of forked ones."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_forking, parents))


def _forking(process: subprocess.Popen[bytes]) -> float:
    """Returns the processor seconds of a process that forks others, and of those of them that have ended."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _log(entry: dict[str, object]) -> None:
    with open(os.environ["AICI_DURATIONS"], "a") as log:
        log.write(json.dumps(entry) + "\n")


def _phase(item: pytest.Item, phase: str) -> Iterator[None]:
    global _measured
    if "AICI_DURATIONS" not in os.environ:
        yield
        return
    if time.monotonic() - _measured >= _YARDSTICK_S:
        _log({"yardstick": yardstick(500_000).cpu})
        _measured = time.monotonic()
    began, spent = time.monotonic(), processor_seconds()
    try:
        yield
    finally:
        seconds = {"cpu": processor_seconds() - spent, "wall": time.monotonic() - began}
        _log({"test": item.nodeid, "phase": phase} | {name: round(s, 4) for name, s in seconds.items()})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _phase(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _phase(item, "call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from _phase(item, "teardown"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Has one process of pytest-xdist compile a file, with its assertions, while the others wait.

    In a new checkout each of them would compile all files, which takes longer than to import them.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(collector, pytest.Module):
            fcntl.flock(stack.enter_context(collector.path.open()), fcntl.LOCK_EX)
        return (yield)
