"""Runs the code of two processes in every order in which their accesses to shared memory can happen.

Each process is a thread, and one thread runs at a time. Before every access to shared memory and every
call that sleeps or wakes, the explorer may switch to another thread. It tries all orders with at most a given
number of preemptions, one run per order. A lost wake-up is reported with the choices that led to it.

The model is sequentially consistent: every thread sees an access at once. Processors delay a store at most
until the next fence, and every ring and every wait has one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from aicirt.ipc.ring import HEADER_BYTES, Doorbell, Ring


class StuckError(AssertionError):
    """No program can continue, and not all have ended: a wake-up was lost."""


class _Abandoned(BaseException):
    """Ends a thread whose run is over."""


class Run:
    """An execution. `choices` selects the program that continues at each point; 0 = the one that ran last."""

    def __init__(self, choices: Sequence[int], preemptions: int) -> None:
        self._given = list(choices)
        self._left = preemptions
        #: (choice, number of alternatives) at each point
        self.made: list[tuple[int, int]] = []
        self._turns: list[threading.Semaphore] = []
        self._ready: list[Callable[[], bool] | None] = []
        self._main = threading.Semaphore(0)
        self._current = -1
        self._over = False
        self._failure: BaseException | None = None

    def execute(self, programs: Sequence[Callable[[], None]]) -> None:
        """Runs the programs to their end. Raises what a program raises, or StuckError."""
        self._turns = [threading.Semaphore(0) for _ in programs]
        self._ready = [_always] * len(programs)
        threads = [
            threading.Thread(target=self._program, args=(number, program), daemon=True)
            for number, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        self._next().release()
        self._main.acquire()
        self._over = True
        for turn, thread in zip(self._turns, threads, strict=True):
            turn.release()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def access(self, until: Callable[[], bool] | None = None) -> None:
        """Lets other programs run first; with `until`, blocks the caller until it is true."""
        mine = self._turns[self._current]
        self._ready[self._current] = until or _always
        turn = self._next()
        if turn is mine:  # most accesses switch to no other thread
            return
        turn.release()
        mine.acquire()
        if self._over:
            raise _Abandoned

    def _program(self, number: int, program: Callable[[], None]) -> None:
        self._turns[number].acquire()
        try:
            if not self._over:
                program()
        except _Abandoned:
            return
        except BaseException as error:
            self._failure = error
        self._ready[number] = None
        self._next().release()

    def _next(self) -> threading.Semaphore:
        """Chooses the program that continues and returns its semaphore, or that of `execute` at the end."""
        runnable = [n for n, ready in enumerate(self._ready) if ready is not None and ready()]
        if self._failure is None and not runnable and any(self._ready):
            self._failure = StuckError(f"no program can continue after {self.made}")
        if self._failure is not None or not runnable:
            return self._main
        self._current = self._choose(runnable)
        return self._turns[self._current]

    def _choose(self, runnable: list[int]) -> int:
        last = self._current
        if last in runnable:  # first, so that choice 0 is no preemption
            runnable.remove(last)
            runnable.insert(0, last)
            if self._left == 0:
                return last
        options = len(runnable)
        if options == 1:
            return runnable[0]
        choice = self._given[len(self.made)] if len(self.made) < len(self._given) else 0
        self.made.append((choice, options))
        if choice and runnable[0] == last:
            self._left -= 1
        return runnable[choice]


def _always() -> bool:
    return True


def explore(make: Callable[[Run], Sequence[Callable[[], None]]], preemptions: int = 2) -> int:
    """Calls `make` and runs the programs that it returns, once per order; returns the number of orders."""
    choices: list[int] = []
    for count in range(1, 1_000_000):
        run = Run(choices, preemptions)
        run.execute(make(run))
        made = run.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            return count
        choices = [choice for choice, _ in made]
        choices[-1] += 1
    raise AssertionError("too many orders")


class SharedArray:
    """Memory in which every access is a possible switch."""

    def __init__(self, run: Run, memory: Any) -> None:
        self._run = run
        self._memory = memory

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, place: Any) -> Any:
        self._run.access()
        return self._memory[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._run.access()
        self._memory[place] = value


class SharedLock:
    """A lock that serves as a semaphore; it starts locked."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._free = False

    def release(self) -> None:
        self._run.access()
        assert not self._free
        self._free = True

    def acquire(self, blocking: bool = True) -> bool:
        self._run.access((lambda: self._free) if blocking else None)
        had, self._free = self._free, False
        return had


def shared_ring(run: Run, capacity: int) -> tuple[Ring, Ring]:
    """Returns the writer's and the reader's view of one ring."""
    memory = bytearray(HEADER_BYTES + capacity)
    ends = Ring(memoryview(memory)), Ring(memoryview(memory))
    for ring in ends:
        ring._positions = SharedArray(run, ring._positions)  # type: ignore[assignment]
        ring._data = SharedArray(run, ring._data)  # type: ignore[assignment]
    return ends


def shared_bell(run: Run) -> Doorbell:
    """Returns one doorbell for both sides. Waits have no end, so that a lost wake-up is found."""
    bell = object.__new__(_SharedBell)
    bell.run, bell.woken = run, False
    bell._words = SharedArray(run, [0, 0])  # type: ignore[assignment]
    return bell


class _SharedBell(Doorbell):
    """Sleeps and wakes as the kernel has it: who sleeps once the word has changed is never woken."""

    __slots__ = ("run", "woken")

    def _sleep(self, words: SharedArray, _seconds: float) -> None:  # type: ignore[override]
        self.run.access()
        if not words._memory[0]:
            self.woken = False
            self.run.access(lambda: self.woken)

    def _wake(self, _words: object) -> None:
        self.run.access()
        self.woken = True
