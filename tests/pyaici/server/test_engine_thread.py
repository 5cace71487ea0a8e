"""The engine's thread: failures, pieces of work, placement, and streams that are read slowly."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Generator
from dataclasses import replace
from typing import Any, cast

import pytest

from aicirt.contract.errors import AiciError
from lab.system.waiting import PATIENCE
from pyaici import HfEngine, Request
from pyaici.engines.engine import FinishReason, Log, TokensAppended, VariablesChanged
from pyaici.server.http.errors import ApiError
from pyaici.server.http.users import User
from pyaici.server.scheduling.engine_thread import EngineThread
from pyaici.server.scheduling.streams import (
    MAX_BACKLOG_BYTES,
    MAX_BACKLOGS_BYTES,
    Backlog,
    Backlogs,
    EngineStream,
    size,
)
from pyaici.server.service import ControllerCall, Service
from tests.pyaici.server.small import job, small_engine, small_service

REQUEST = Request([1, 2, 3], max_tokens=3000)
SHORT = Request([4, 5], max_tokens=3)


@contextlib.asynccontextmanager
async def running(engine: HfEngine, failures: list[str] | None = None) -> AsyncIterator[EngineThread]:
    noted = [] if failures is None else failures
    thread = EngineThread(engine, asyncio.get_running_loop(), lambda: noted.append("failed"))
    try:
        yield thread
    finally:
        await asyncio.to_thread(thread.close)


async def _rest(stream: EngineStream) -> list[Any]:
    """Reads a stream to its end and returns its results."""
    async for _ in stream:
        pass
    assert stream.results is not None
    return stream.results


async def _ended(thread: EngineThread) -> None:
    await asyncio.to_thread(thread._thread.join, 60)
    assert not thread.alive


def test_waiting_work_is_refused_when_the_engine_closes() -> None:
    async def main() -> None:
        done: list[str] = []
        go, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            go.wait(PATIENCE)

        async with running(small_engine()) as thread:
            first = thread.post(hold)
            assert await asyncio.to_thread(begun.wait, 60)
            second = thread.post(lambda: done.append("second"))
            waits = asyncio.create_task(thread.add(REQUEST))
            await asyncio.sleep(0)
            closing = asyncio.create_task(asyncio.to_thread(thread.close))
            while thread.alive:
                await asyncio.sleep(0.01)
            go.set()
            await closing
            assert first.result(0) is None
            with pytest.raises(ApiError, match="the server is shutting down") as refused:
                second.result(0)
            assert refused.value.status == 503 and refused.value.code == "overloaded"
            with pytest.raises(ApiError, match="the server is shutting down"):
                await waits
            with pytest.raises(ApiError, match="the server is shutting down"):
                await thread.call(lambda: done.append("late"))
            assert done == [] and not thread.failed

    asyncio.run(main())


def test_steps_come_between_tasks_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding a request waits for a worker, which a busy machine may run late."""
    monkeypatch.setattr("pyaici.server.scheduling.engine_thread._TASK_SECONDS", 0.0)
    go = threading.Event()

    async def main() -> None:
        engine = small_engine()
        async with running(engine) as thread:
            stream = await thread.add(REQUEST)
            await anext(stream)
            thread.post(lambda: go.wait(PATIENCE))

            def work() -> int:
                begun = time.monotonic()
                while time.monotonic() < begun + 2 * thread._step_seconds:
                    time.sleep(0.001)
                return engine.stats.steps

            tasks = [thread.post(work) for _ in range(5)]
            go.set()
            steps = [await asyncio.wrap_future(task) for task in tasks]
            assert len(set(steps)) == 5, steps

    asyncio.run(main())


def test_failed_cancellation_does_not_affect_other_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        engine = small_engine()
        async with running(engine) as thread:
            one, other = await thread.add(REQUEST), await thread.add(REQUEST)
            await anext(one)
            cancel = engine.cancel

            def refuse(request_id: int) -> None:
                monkeypatch.setattr(engine, "cancel", cancel)
                raise AiciError("aicirt has gone")

            monkeypatch.setattr(engine, "cancel", refuse)
            one.close()
            await anext(other)
            (result,) = await _rest(await thread.add(SHORT))
            assert result.sampled == 3 and thread.alive

    asyncio.run(main())
    assert "AiciError" in caplog.text


def test_missing_results_end_only_that_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        engine = small_engine()
        async with running(engine) as thread:
            other = await thread.add(REQUEST)
            await anext(other)
            results = engine.results

            def fail(request_id: int) -> Any:
                monkeypatch.setattr(engine, "results", results)
                raise KeyError(request_id)

            monkeypatch.setattr(engine, "results", fail)
            with pytest.raises(ApiError, match="internal error") as ended:
                await _rest(await thread.add(SHORT))
            assert ended.value.status == 500
            (result,) = await _rest(await thread.add(SHORT))
            assert result.sampled == 3
            await anext(other)

    asyncio.run(main())
    assert "KeyError" in caplog.text


def test_failing_stream_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with running(small_engine()) as thread:
            one = await thread.add(REQUEST)
            failed: list[Any] = []

            def fail(*events: Any) -> None:
                failed.append(events)
                raise RuntimeError("no")

            monkeypatch.setattr(one, "add_events", fail)
            (result,) = await _rest(await thread.add(SHORT))
            assert result.sampled == 3 and failed

    asyncio.run(main())


@pytest.mark.parametrize("what", ["drain", "busy"])
def test_failure_of_the_thread_ends_all_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    async def main() -> None:
        engine, failures = small_engine(), list[str]()
        async with running(engine, failures) as thread:
            stream = await thread.add(REQUEST)
            await anext(stream)

            def fail(*_: Any) -> Any:
                raise OSError("no more")

            with monkeypatch.context() as patch:
                patch.setattr(HfEngine, what, property(fail) if what == "busy" else fail)
                if what == "drain":
                    patch.setattr(engine, "step", fail)
                await _ended(thread)
            with contextlib.suppress(ApiError):
                (result,) = await _rest(stream)
                assert result.finish_reason is FinishReason.CANCELLED
            assert failures == ["failed"] and thread.failed
            with pytest.raises(ApiError, match="the engine has failed") as refused:
                await thread.add(SHORT)
            assert refused.value.status == 503

    asyncio.run(main())
    assert "CRITICAL" in caplog.text and "the engine has failed: restart the server" in caplog.text


def test_repeated_failures_of_the_model_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        engine, failures = small_engine(), list[str]()
        async with running(engine, failures) as thread:
            monkeypatch.setattr(engine._runner._model, "forward", None)
            for _ in range(3):
                (result,) = await _rest(await thread.add(SHORT))
                assert result.finish_reason is FinishReason.ERROR
            await _ended(thread)
            assert failures == ["failed"]

    asyncio.run(main())
    assert caplog.text.count("a step of the engine failed") == 3


def test_work_in_pieces_lets_the_engine_step_and_can_be_abandoned() -> None:
    async def main() -> None:
        engine = small_engine()
        async with running(engine) as thread:
            stream = await thread.add(REQUEST)
            await anext(stream)
            steps: list[int] = []
            wanted, closed = threading.Event(), threading.Event()
            wanted.set()

            def count(number: int) -> Generator[None, None, str]:
                try:
                    for _ in range(number):
                        steps.append(engine.stats.steps)
                        yield
                finally:
                    closed.set()
                return "done"

            assert await asyncio.wrap_future(thread.post_in_pieces(lambda: count(5), wanted.is_set)) == "done"
            assert steps == list(range(steps[0], steps[0] + 5))
            closed.clear()
            steps.clear()
            endless = thread.post_in_pieces(lambda: count(1 << 40), wanted.is_set)
            while not steps:
                await anext(stream)
            wanted.clear()
            with pytest.raises(ApiError) as gone:
                await asyncio.wrap_future(endless)
            assert gone.value.status == 499 and closed.is_set()
            wanted.set()
            endless = thread.post_in_pieces(lambda: count(1 << 40), wanted.is_set)
            await asyncio.to_thread(thread.close)
            with pytest.raises(ApiError, match="the server is shutting down"):
                endless.result(0)
            (result,) = await _rest(stream)
            assert result.finish_reason is FinishReason.CANCELLED

    asyncio.run(main())


def test_slow_placement_does_not_block_other_requests() -> None:
    class Slow(HfEngine):
        def place(self, request: Request, gone: Any = None) -> Any:
            if request.max_tokens == 1:
                begun.set()
                assert go.wait(PATIENCE)
            return super().place(request, gone)

    go, begun = threading.Event(), threading.Event()

    async def main() -> None:
        engine = small_engine()
        engine.__class__ = Slow
        async with running(engine) as thread:
            stream = await thread.add(REQUEST)
            slow = asyncio.create_task(thread.add(Request([1], max_tokens=1)))
            assert await asyncio.to_thread(begun.wait, 60)
            before = engine.stats.steps
            while engine.stats.steps < before + 5:
                await anext(stream)
            go.set()
            (result,) = await _rest(await slow)
            assert result.sampled == 1

    asyncio.run(main())


def test_cancelled_request_keeps_its_turn_until_it_is_placed() -> None:
    class Slow(HfEngine):
        def place(self, request: Request, gone: Any = None) -> Any:
            begun.set()
            assert go.wait(PATIENCE)
            return super().place(request, gone)

    go, begun = threading.Event(), threading.Event()

    async def begin(service: Service) -> None:
        async with service.run(job(3)):
            pass

    async def main() -> None:
        engine = small_engine()
        engine.__class__ = Slow
        async with small_service(engine, max_streams=1) as service:
            left = asyncio.create_task(begin(service))
            assert await asyncio.to_thread(begun.wait, 60)
            left.cancel()
            next_one = asyncio.create_task(begin(service))
            while not len(service.waiting_room):
                await asyncio.sleep(0.01)
            assert not left.done()
            go.set()
            await next_one
            assert left.cancelled()

    asyncio.run(main())


def test_slow_reader_is_cut_off() -> None:
    """The limit counts bytes, not steps."""

    async def main() -> None:
        cancelled: list[EngineStream] = []
        stream = EngineStream(cancelled.append, Backlogs(), Backlog())
        written = VariablesChanged(1, 1, {"x": bytes(1 << 20)})
        for _ in range(15):
            stream.add_events([written], None)
        assert not cancelled and await anext(stream) == [written]
        stream.add_events([written], None)
        assert not cancelled
        stream.add_events([Log(1, 1, "a" * (1 << 20))], None)
        assert cancelled == [stream]
        with pytest.raises(ApiError, match="too slowly") as error:
            await anext(stream)
        assert error.value.code == "slow_reader"
        stream.add_events([written], None)
        stream.close()
        assert cancelled == [stream] and stream._bytes == 0

    asyncio.run(main())


def test_answers_of_one_request_share_the_backlog_limit() -> None:
    async def main() -> None:
        cancelled: list[EngineStream] = []
        backlogs, backlog = Backlogs(), Backlog()
        streams = [EngineStream(cancelled.append, backlogs, backlog) for _ in range(4)]
        written = VariablesChanged(1, 1, {"x": bytes(1 << 20)})
        for _ in range(3):
            for stream in streams:
                stream.add_events([written], None)
        other = EngineStream(cancelled.append, backlogs, Backlog())
        for _ in range(4):
            other.add_events([written], None)
        for stream in streams:
            stream.add_events([written], None)
        assert cancelled == streams[3:], "the last one reaches the limit"
        for stream in (*streams, other):
            stream.close()
        assert backlog.nbytes == 0 and not backlogs._open

    asyncio.run(main())


def test_many_requests_share_the_total_backlog_limit() -> None:
    async def main() -> None:
        cancelled: list[EngineStream] = []
        backlogs, held = Backlogs(), 0
        streams = [EngineStream(cancelled.append, backlogs, Backlog()) for _ in range(64)]
        for _ in range(32):
            for stream in streams:
                stream.add_events([VariablesChanged(1, 1, {"x": bytes(1 << 20)})], None)
            held = max(held, sum(stream._bytes for stream in streams))
        assert cancelled == streams and held <= MAX_BACKLOGS_BYTES + 64 * (1 << 20)

    asyncio.run(main())


def test_usual_texts_are_far_below_the_backlog_limit() -> None:
    token = TokensAppended(1, 1, [5], " word", next(iter(_origins())), [-0.5], [[(7, -1.0)] * 20])
    assert 10_000 * size(token) > MAX_BACKLOG_BYTES > 5000 * size(token)


def _origins() -> Any:
    from pyaici.engines.engine import Origin

    return Origin


def test_requests_that_still_start_get_the_error_of_a_server_that_ends_at_once() -> None:
    """A controller may take long to read its argument; the client must not lose its connection instead."""

    class Slow:
        def __init__(self) -> None:
            self.asked = asyncio.Event()

        async def find(self, name: str, user: User) -> str:
            self.asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def main() -> None:
        async with small_service() as service:
            service.controllers = slow = cast("Any", Slow())
            controlled = replace(job(3), controller=ControllerCall("regex", "a"))

            async def ask() -> None:
                async with service.run(controlled):
                    raise AssertionError

            task = asyncio.create_task(ask())
            await slow.asked.wait()
            service.fail_requests()
            with pytest.raises(ApiError, match="the server is shutting down") as refused:
                await asyncio.wait_for(task, PATIENCE)
            assert refused.value.status == 503

    asyncio.run(main())
