"""A child process answers calls, and may hang or die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from lab.measurement.child import CallTimeout, Child, ChildDied
from lab.system.waiting import PATIENCE


class Adder:
    def __init__(self, first: int) -> None:
        self.sum = first

    def add(self, number: int) -> int:
        self.sum += number
        return self.sum

    def sleep(self) -> None:
        time.sleep(PATIENCE)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def fail(self) -> None:
        raise KeyError("no such thing")

    def interrupt(self) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return self.sum


@contextmanager
def adder(first: int) -> Iterator[Adder]:
    yield Adder(first)


def test_child_keeps_its_state_until_it_is_killed() -> None:
    with closing(Child(adder, 5)) as child:
        assert child.call("add", 1, seconds=PATIENCE) == 6
        assert child.call("add", 1, seconds=PATIENCE) == 7
        assert child.call("interrupt", seconds=PATIENCE) == 7, "the parent alone decides about Ctrl-C"
        pid = child.pid
        with pytest.raises(CallTimeout, match=r"sleep took more than 0\.05 s"):
            child.call("sleep", seconds=0.05)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert child.call("add", 1, seconds=PATIENCE) == 6, "a new child"
        assert child.grown_kib < 1 << 20


@pytest.mark.parametrize(("method", "status"), [("crash", -signal.SIGSEGV), ("fail", 1)])
def test_death_of_the_child_is_an_error(method: str, status: int) -> None:
    with closing(Child(adder, 5)) as child:
        with pytest.raises(ChildDied, match=f"the process ended in {method} with status {status}"):
            child.call(method, seconds=PATIENCE)
        assert child.call("add", 1, seconds=PATIENCE) == 6


def test_child_that_never_ran_can_be_closed() -> None:
    child = Child(adder, 5)
    child.close()
    child.close()
