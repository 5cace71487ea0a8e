"""Fair turns: the order of callers, reserved places, and limits on waiting requests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from pyaici.server.http.errors import ApiError
from pyaici.server.scheduling.queues import FairTurns, Parking, WaitingLimits

ROOM = WaitingLimits(1000, 1000)


class _Requests:
    """Requests that each take a place and keep it until `end`."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}
        #: names in the order of their turns
        self.begun: list[str] = []

    async def send(self, *names: str) -> None:
        """Sends requests; the first letter of a name is the caller."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._run(name))
        await _settle()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await _settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await _settle()

    def error(self, name: str) -> ApiError:
        error = self._tasks[name].exception()
        assert isinstance(error, ApiError)
        return error

    async def _run(self, name: str) -> None:
        async with self._turns.turn(name[0]):
            self.begun.append(name)
            await self._ends[name].wait()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def _with(turns: FairTurns, work: Callable[[_Requests], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def requests() -> AsyncIterator[_Requests]:
        made = _Requests(turns)
        try:
            yield made
        finally:
            await made.close()

    async def run() -> None:
        async with requests() as made:
            await work(made)
        assert not turns._turns.held and turns._turns.waiting() == (0, 0)
        assert not turns._room._waiting

    asyncio.run(run())


def test_caller_with_many_requests_delays_only_its_own() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send(*(f"a{number}" for number in range(100)))
        await requests.send("b0", "b1", "c0")
        assert requests.begun == ["a0", "a1"]
        await requests.end("a0")
        assert requests.begun[2:] == ["b0"], "a still holds one"
        await requests.end("a1")
        assert requests.begun[3:] == ["a2"], "c holds none either, but came later"
        await requests.end("b0")
        assert requests.begun[4:] == ["c0"]
        await requests.end("c0", "a2")
        assert requests.begun[5:] == ["b1", "a3"]

    _with(FairTurns(2, ROOM), work)


def test_single_caller_may_hold_all_of_few_places() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send("a0", "a1", "a2")
        assert requests.begun == ["a0", "a1", "a2"]

    _with(FairTurns(3, ROOM), work)


def test_last_places_are_reserved_for_callers_without_one() -> None:
    """Running work is not ended in favour of others, so no caller may hold all places."""

    async def work(requests: _Requests) -> None:
        await requests.send(*(f"a{number}" for number in range(20)))
        assert len(requests.begun) == 14
        await requests.send("b0", "b1")
        assert requests.begun[14:] == ["b0"]
        await requests.send("c0", "d0")
        assert requests.begun[15:] == ["c0"], "now all places are taken"
        await requests.end("a0")
        assert requests.begun[16:] == ["d0"]
        await requests.end("b0", "c0")
        assert requests.begun[17:] == ["b1"], "a waits until more than the reserve is free"
        await requests.end("d0", "b1")
        assert requests.begun[18:] == ["a14"]

    _with(FairTurns(16, ROOM), work)


def test_place_is_held_until_its_work_has_ended() -> None:
    """Otherwise clients that disconnect and send again could start more work than allowed."""
    go, begun = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go.wait()

    async def main() -> None:
        turns = FairTurns(2, ROOM, each=1)
        with ThreadPoolExecutor(2) as threads:
            for _ in range(3):
                left = asyncio.create_task(turns.run("a", threads, block))
                while not begun.is_set():
                    await asyncio.sleep(0)
                await _settle()
                left.cancel()
                await asyncio.wait({left})
                assert left.cancelled() and turns._turns.held["a"] == 1
            assert await turns.run("b", threads, lambda: 1) == 1, "other callers are not affected"
            again = asyncio.create_task(turns.run("a", threads, lambda: 2))
            await _settle()
            assert not again.done()
            go.set()
            assert await again == 2
            while turns._turns.held:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_places_of_each_caller_are_bounded() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send("a0", "a1", "a2", "a3")
        await requests.send("b0", "c0")
        assert requests.begun == ["a0", "a1", "b0", "c0"], "waiting requests of a caller do not block others"
        await requests.end("b0")
        assert len(requests.begun) == 4
        await requests.end("a1")
        assert requests.begun[4:] == ["a2"]

    _with(FairTurns(4, ROOM, each=2), work)


def test_requests_that_wait_outside_give_their_places_to_others() -> None:
    async def main() -> None:
        turns = FairTurns(2, ROOM, parking=Parking(3, 2))
        async with contextlib.AsyncExitStack() as stack:
            own = [await stack.enter_async_context(turns.turn("a")) for _ in range(2)]
            for turn in (*own, *own):  # twice is once
                turn.step_aside(True)
            assert not turns._turns.held
            third = await stack.enter_async_context(turns.turn("a"))
            third.step_aside(True)
            assert turns._turns.held["a"] == 1, "a caller may have two outside"
            async with turns.turn("b") as other:
                other.step_aside(True)
                own[0].step_aside(False)
                assert turns._turns.held == {"a": 2}
                own[1].step_aside(False)
                assert turns._turns.held == {"a": 3}, "whoever has begun does not wait again"
                third.step_aside(True)
                late = asyncio.create_task(turns._turns.enter("c"))
                await _settle()
                assert not late.done() and turns._turns.held == {"a": 2}
            assert not late.done()
        await late
        assert turns._turns.held == {"c": 1} and not turns._parking._parked

    asyncio.run(main())


def test_requests_that_come_back_leave_the_last_places_to_others() -> None:
    """A caller has as many as two may have, since those that waited take their places again."""

    async def main() -> None:
        turns = FairTurns(8, ROOM, parking=Parking(100, 100))
        async with contextlib.AsyncExitStack() as held:
            waiting = []
            for _ in range(8):
                turn = await held.enter_async_context(turns.turn("eve"))
                turn.step_aside(True)
                waiting.append(turn)
            for _ in range(7):
                await held.enter_async_context(turns.turn("eve"))
            for turn in waiting:
                turn.step_aside(False)
            assert turns._turns.held["eve"] == 15
            others = _Requests(turns)
            await others.send("a", "b")
            assert others.begun == ["a"], "the last place is for callers without one, and there is one"
            await others.end("a")
            assert others.begun == ["a", "b"]
            await others.end("b")

    asyncio.run(main())


def test_cancelled_waiting_requests_are_forgotten() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send("a0", "a1", "b0", "c0", "c1")
        await requests.cancel("b0")
        await requests.cancel("c1")
        await requests.end("a0")
        assert requests.begun == ["a0", "a1", "c0"]
        await requests.end("a1")
        await requests.cancel("c0")
        await requests.send("a2")
        assert requests.begun[3:] == ["a2"]

    _with(FairTurns(2, ROOM), work)


def test_request_cancelled_at_its_turn_passes_the_place_on() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send("a0", "b0", "c0")
        requests._ends["a0"].set()
        await asyncio.sleep(0)
        await requests.cancel("b0")
        assert requests.begun[-1] == "c0"

    _with(FairTurns(1, ROOM), work)


def test_too_many_waiting_requests_are_refused() -> None:
    async def work(requests: _Requests) -> None:
        await requests.send(*(f"a{number}" for number in range(4)))
        refused = requests.error("a3")
        assert (refused.status, refused.code) == (429, "too_many_waiting")
        assert refused.headers == {"Retry-After": "1"}
        await requests.send("b0", "c0")
        full = requests.error("c0")
        assert (full.status, full.code) == (503, "overloaded")
        await requests.end("a0")
        await requests.send("c1")
        with pytest.raises(asyncio.InvalidStateError):
            requests.error("c1")

    _with(FairTurns(1, WaitingLimits(3, 2)), work)
