"""Calls of cancelled tasks also end in aicirt, and hold their turns until then."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from aicirt.contract.errors import ArgumentError, NotOwnerError, TimeLimitError
from lab.attacks.modules import LOOPS, slow_module
from lab.system.waiting import PATIENCE
from pyaici.client.runtime import Runtime
from pyaici.server.controller_store import ControllerStore
from pyaici.server.scheduling.threads import in_own_thread
from pyaici.server.settings import ServerSettings
from tests.pyaici.client.conftest import VOCABULARY
from tests.pyaici.server.small import USER


def test_call_returns_its_result_or_raises_its_error() -> None:
    def fail() -> None:
        raise ArgumentError("no")

    async def main() -> None:
        assert await in_own_thread(lambda: 7) == 7
        with pytest.raises(ArgumentError, match="no"):
            await in_own_thread(fail)

    asyncio.run(main())


def test_cancellation_waits_for_the_call_to_end() -> None:
    begun, end = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        end.wait()

    async def main() -> None:
        task = asyncio.create_task(in_own_thread(call))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done, "the turn must not be free while the work goes on"
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_builds_of_cancelled_callers_end() -> None:
    with Runtime(workers=1, limits={"init_ms": 100_000}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(slow_module()).id
        builder = runtime.health()["builder"]["pid"]

        async def leave(arg: str) -> None:
            task = asyncio.create_task(in_own_thread(partial(runtime.prepare, module, arg)))
            while runtime.health()["builds"] != {"running": 1, "waiting": 0}:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        for where, name in LOOPS.items():
            if name != "aici_init_prompt":
                asyncio.run(leave(f"{where} 1"))
        deadline = time.monotonic() + PATIENCE
        while runtime.health()["builds"] != {"running": 0, "waiting": 0}:
            assert time.monotonic() < deadline
        assert runtime.health()["builder"]["pid"] == builder
        runtime.prepare(module, "ok")


def test_build_with_another_waiting_caller_goes_on() -> None:
    with Runtime(workers=1, limits={"init_ms": 300}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(slow_module()).id

        async def main() -> None:
            leaving, staying = (
                asyncio.create_task(in_own_thread(partial(runtime.prepare, module, "n 1"))) for _ in range(2)
            )
            while runtime.health()["builds"]["running"] != 1:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            leaving.cancel()
            with pytest.raises(TimeLimitError, match="aici_init used"):
                await staying

        asyncio.run(main())
        assert runtime.health()["builder"]["built"] == 1


def test_accepted_argument_does_not_wait_for_slow_new_ones() -> None:
    with Runtime(workers=1, limits={"init_ms": 300}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(slow_module()).id

        async def main() -> None:
            store = ControllerStore(runtime, ServerSettings())
            await store.prepare(module, "ok", USER)
            slow = [asyncio.create_task(store.prepare(module, f"n {number}", USER)) for number in range(4)]
            while not runtime.health()["builds"]["running"]:
                await asyncio.sleep(0.01)
            await store.prepare(module, "ok", USER)
            assert not any(task.done() for task in slow)
            for error in await asyncio.gather(*slow, return_exceptions=True):
                assert isinstance(error, TimeLimitError)

        asyncio.run(main())


class Accepting:
    """Stands for a runtime that accepts every argument and removes no module."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def prepare(self, _: str, arg: str, owner: str) -> None:
        self.asked.append((owner, arg))

    def remove(self, *_: str, **__: Any) -> None:
        raise NotOwnerError("no")


def test_user_cannot_push_out_the_accepted_arguments_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.server.controller_store._ACCEPTED", 4)

    async def main() -> None:
        runtime = Accepting()
        store = ControllerStore(cast(Runtime, runtime), ServerSettings())
        other = replace(USER, name="other")
        await store.prepare("m", "kept", other)
        for number in range(20):
            await store.prepare("m", f"n {number}", USER)
        with pytest.raises(NotOwnerError):
            await store.remove("m", USER)
        for user, arg in ((other, "kept"), (USER, "n 19")):
            asked = len(runtime.asked)
            await store.prepare("m", arg, user)
            assert len(runtime.asked) == asked, "nobody may have to ask again"
        store.forget(USER)
        await store.prepare("m", "n 19", USER)
        await store.prepare("m", "kept", other)
        assert runtime.asked[-1] == (USER.name, "n 19")

    asyncio.run(main())
