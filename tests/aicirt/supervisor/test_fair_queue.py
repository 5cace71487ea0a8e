"""Owners take turns at compiling and building; each has a limit of CPU time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import OwnerLimitError
from aicirt.settings import DaemonSettings
from aicirt.supervisor.fair_queue import FairQueue, builds, compilations
from tests.thorough import cases

SETTINGS = DaemonSettings(owner_compile_s=100, max_compilations=3, owner_compilations=2, owner_queue=4)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Compilations that last until the test ends them."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.begun: list[str] = []
        self.running: Counter[str] = Counter()
        self.ends: dict[str, list[asyncio.Event]] = {}

    async def run(self, owner: str, seconds: float = 0.0) -> None:
        end = asyncio.Event()
        async with self.queue.turn(owner) as spent:
            self.begun.append(owner)
            self.running[owner] += 1
            assert self.running.total() <= 3 and self.running[owner] <= 2
            self.ends.setdefault(owner, []).append(end)
            try:
                await end.wait()
            finally:
                self.running[owner] -= 1
                spent(seconds)

    def start(self, *owners: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.run(owner)) for owner in owners]

    async def end(self, owner: str) -> None:
        self.ends[owner].pop(0).set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_heavy_uploader_delays_only_their_own_uploads() -> None:
    async def main() -> None:
        work = Work(compilations(SETTINGS, Clock()))
        tasks = work.start(*"aaaaaa")
        await settle()
        assert work.begun == ["a", "a"], "two of one owner at a time"
        tasks += work.start(*"bbc")
        await settle()
        assert work.begun == ["a", "a", "b"], "another owner does not wait for the queue of a"
        await work.end("a")
        assert work.begun[3:] == ["c"], "an owner without a running compilation comes first"
        await work.end("a")
        await work.end("b")
        assert sorted(work.begun[4:]) == ["a", "b"]
        assert work.queue.count_turns() == {"running": 3, "waiting": 3}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert work.queue.count_turns() == {"running": 0, "waiting": 0}

    asyncio.run(main())


def test_number_of_waiting_compilations_per_owner_is_limited() -> None:
    async def main() -> None:
        work = Work(compilations(SETTINGS, Clock()))
        tasks = work.start(*"aaaaaa")
        await settle()
        with pytest.raises(OwnerLimitError, match=r"5 compilations would wait for owner 'a'.*owner_queue"):
            await work.run("a")
        tasks += work.start("b")
        await settle()
        assert work.begun[-1] == "b"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_compile_time_is_used_up_and_becomes_available_again() -> None:
    clock = Clock()
    queue = compilations(SETTINGS, clock)

    async def use(owner: str, seconds: float) -> None:
        async with queue.turn(owner) as spent:
            spent(seconds)

    asyncio.run(use("a", 60))
    clock.now = 1800
    asyncio.run(use("a", 50))
    with pytest.raises(OwnerLimitError, match=r"used 110\.0 s .* limit is 100 .* again in 30 minutes"):
        asyncio.run(use("a", 0))
    asyncio.run(use("b", 1))
    clock.now = 3601
    asyncio.run(use("a", 1000))
    clock.now = 5401
    with pytest.raises(OwnerLimitError):
        asyncio.run(use("a", 1))
    clock.now = 7202
    asyncio.run(use("a", 1))
    clock.now = 7200 * 2
    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing(queue))
    asyncio.run(use("a", 1))
    assert queue.count_turns() == {"running": 0, "waiting": 0}


def test_owners_are_forgotten_and_a_limit_of_zero_means_one() -> None:
    clock = Clock()
    queue = compilations(DaemonSettings(max_compilations=0, owner_compilations=0), clock)

    async def use(owner: str) -> None:
        async with queue.turn(owner) as spent:
            spent(1.0)

    for number in range(10):
        asyncio.run(use(f"owner {number}"))
    clock.now = 4000
    asyncio.run(use("last"))
    assert set(queue._used) == {"last"} and not queue._turns.held


def test_owner_who_has_used_much_time_yields_to_others() -> None:
    clock = Clock()
    queue = builds(DaemonSettings(max_builds=2, owner_builds=2), clock)
    order: list[str] = []

    async def use(owner: str, seconds: float) -> None:
        async with queue.turn(owner) as spent:
            order.append(owner)
            await asyncio.sleep(0)
            spent(seconds)

    async def main() -> None:
        await use("greedy", 30.0)
        await use("busy", 3.0)
        order.clear()
        waiting = [use(owner, 0.1) for owner in ("first", "first", "greedy", "busy", "new")]
        await asyncio.gather(*waiting)

    asyncio.run(main())
    assert order == ["first", "first", "new", "busy", "greedy"]
    order.clear()
    clock.now = 3601
    asyncio.run(use("greedy", 0.0))
    assert set(queue._used) == {"greedy"}, "usage is forgotten after an hour"


def test_usage_records_of_an_owner_are_bounded() -> None:
    clock = Clock()
    queue = builds(DaemonSettings(), clock)

    async def main() -> None:
        for _ in range(10_000):
            async with queue.turn("a") as spent:
                spent(0.5)
            clock.now += 1

    asyncio.run(main())
    usage = queue._used["a"]
    assert len(usage.spent) <= 61
    usage.drop_old_usage(clock.now)
    assert 1750 <= usage.total <= 1800


def test_waiting_bytes_per_owner_are_limited() -> None:
    async def main() -> None:
        queue = builds(DaemonSettings(owner_builds=1, owner_queue_bytes=100), Clock())
        end = asyncio.Event()

        async def hold(nbytes: int) -> None:
            async with queue.turn("a", nbytes):
                await end.wait()

        tasks = [asyncio.create_task(hold(nbytes)) for nbytes in (1000, 60, 40)]
        await settle()
        with pytest.raises(OwnerLimitError, match=r"101 bytes of builds would wait.*owner_queue_bytes"):
            await hold(1)
        end.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


async def failing(queue: FairQueue) -> None:
    async with queue.turn("a"):
        raise ZeroDivisionError


@settings(max_examples=cases(20, 50), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "cancel", "end"]), st.sampled_from("abc"), st.integers(0, 9))
    )
)
def test_any_order_of_starts_ends_and_cancellations(events: list[tuple[str, str, int]]) -> None:
    """No compilation waits while the limits permit it to run, and cancelling all leaves the queue empty."""

    async def main() -> None:
        work, tasks = Work(compilations(SETTINGS, Clock())), []
        for kind, owner, number in events:
            if kind == "start":
                tasks += work.start(owner)
            elif kind == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif work.ends.get(owner):
                work.ends[owner].pop(0).set()
            if number % 2:
                await settle()
        await settle()
        waiting = {o for o in "abc" if work.queue._turns.waiting(o)[0]}
        running = work.running
        assert work.queue.count_turns()["running"] == running.total()
        assert running.total() == 3 or all(running[owner] == 2 for owner in waiting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert work.queue.count_turns() == {"running": 0, "waiting": 0}

    asyncio.run(main())
