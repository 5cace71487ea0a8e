"""Blocking calls of one owner do not delay calls of another."""

from __future__ import annotations

import threading

import pytest

from lab.system.waiting import PATIENCE
from pyaici.engines.connection import OwnerThreads


def test_blocking_calls_delay_only_their_own_owner() -> None:
    threads, end = OwnerThreads(2), threading.Event()
    begun = threading.Semaphore(0)

    def block() -> bool:
        begun.release()
        return end.wait(PATIENCE)

    blocked = [threads.submit("greedy", block) for _ in range(50)]
    begun.acquire()
    begun.acquire()
    assert threads.submit("victim", lambda: 7).result(60) == 7
    assert sum(future.running() for future in blocked) == 2 and not begun.acquire(blocking=False)
    end.set()
    assert all(future.result(60) for future in blocked)


def test_errors_reach_the_caller_and_idle_owners_are_removed() -> None:
    threads = OwnerThreads(1)

    def fail() -> None:
        raise ZeroDivisionError

    for number in range(20):
        with pytest.raises(ZeroDivisionError):
            threads.submit(f"owner {number}", fail).result(60)
    while threads._running:
        pass
    assert not threads._waiting


def test_closing_cancels_calls_that_have_not_started() -> None:
    threads, end = OwnerThreads(1), threading.Event()
    begun = threading.Event()

    def block() -> None:
        begun.set()
        end.wait(PATIENCE)

    first, second, third = (threads.submit("a", block) for _ in range(3))
    begun.wait(PATIENCE)
    assert second.cancel()
    threads.close()
    end.set()
    first.result(60)
    assert third.cancelled() and not first.cancelled()
