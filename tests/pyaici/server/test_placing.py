"""A controller is placed outside the engine's thread, and again if its template or worker has gone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from lab.system.waiting import PATIENCE
from pyaici import HfEngine, Request
from pyaici.client.control import Placement
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import FinishReason
from pyaici.server.scheduling.engine_thread import EngineThread
from tests.pyaici.server.small import small_engine


def test_request_is_placed_again_if_its_template_was_evicted(guest: bytes) -> None:
    with Runtime(workers=1, limits={"max_templates": 1}) as runtime:
        module = ""
        placed: list[Placement | None] = []

        class Crowded(HfEngine):
            """The worker has room for one template, and another one evicts it immediately."""

            def place(self, request: Request, gone: Placement | None = None) -> Placement | None:
                placed.append(super().place(request, gone))
                if len(placed) < 3:
                    runtime.place(module, f"ok {len(placed)}")
                return placed[-1]

        engine = small_engine(runtime)
        module = runtime.upload(guest).id
        engine.__class__ = Crowded

        async def main() -> None:
            thread = EngineThread(engine, asyncio.get_running_loop())
            try:
                stream = await thread.add(Request([1, 2], controller=module, arg="ok", max_tokens=3))
                async for _ in stream:
                    pass
                assert stream.results is not None
                assert stream.results[0].finish_reason is FinishReason.LENGTH, stream.results[0].error
            finally:
                await asyncio.to_thread(thread.close)

        asyncio.run(main())
        numbers = [place.template for place in placed if place is not None]
        assert len(set(numbers)) == 3, "each time the worker had to adopt a new template"


def test_engine_does_not_wait_for_a_worker_that_it_has_not_used_before(guest: bytes) -> None:
    with Runtime(workers=1) as runtime, Runtime(runtime._require_daemon().socket_path) as other:
        engine = small_engine(runtime)
        request = Request([1, 2], controller=runtime.upload(guest).id, arg="ok", max_tokens=3)
        other.register(engine.vocabulary)
        other.place(request.controller or "", request.arg, capabilities=request.capabilities)
        worker = runtime.health()["workers"][0]["pid"]

        async def main() -> None:
            thread = EngineThread(engine, asyncio.get_running_loop())
            try:
                free = await thread.add(Request([1, 2], max_tokens=4000))
                os.kill(worker, signal.SIGSTOP)
                stopped = asyncio.create_task(thread.add(request))
                while engine.stats.steps < 50:
                    await anext(free)
                assert not stopped.done()
                os.kill(worker, signal.SIGCONT)
                async for _ in await stopped:
                    pass
            finally:
                await asyncio.to_thread(thread.close)

        asyncio.run(main())


def test_request_is_placed_again_if_its_worker_dies_while_it_waits_for_the_engine(guest: bytes) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go.wait(PATIENCE)

    with Runtime(workers=1) as runtime:
        placed: list[int] = []

        class Counting(HfEngine):
            def place(self, request: Request, gone: Placement | None = None) -> Placement | None:
                placement = super().place(request, gone)
                assert placement is not None
                placed.append(placement.address.pid)
                return placement

        engine = small_engine(runtime)
        module = runtime.upload(guest).id
        engine.__class__ = Counting

        async def main() -> None:
            thread = EngineThread(engine, asyncio.get_running_loop())
            try:
                thread.post(hold)
                assert await asyncio.to_thread(held.wait, 60)
                adding = asyncio.create_task(
                    thread.add(Request([1, 2], controller=module, arg="ok", max_tokens=3))
                )
                while not placed:
                    await asyncio.sleep(0.01)
                os.kill(placed[0], signal.SIGKILL)
                while len(placed) < 2:
                    await asyncio.sleep(0.01)
                go.set()
                stream = await adding
                async for _ in stream:
                    pass
                assert stream.results is not None
                assert stream.results[0].finish_reason is FinishReason.LENGTH, stream.results[0].error
            finally:
                go.set()
                await asyncio.to_thread(thread.close)

        asyncio.run(main())
        assert len(set(placed)) == 2
