"""Requests learn of the death of a worker, or of aicirt, whatever the engine's thread is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aicirt.contract.errors import WorkerDiedError
from lab.system.processes import family, private_daemons
from lab.system.waiting import PATIENCE
from pyaici import Request
from pyaici.client.runtime import Runtime
from pyaici.server.http.errors import ApiError
from pyaici.server.scheduling import engine_thread
from pyaici.server.scheduling.engine_thread import EngineThread
from tests.pyaici.server.serving import Serving
from tests.pyaici.server.small import small_engine


def test_death_of_a_worker_ends_its_streams_during_a_step(
    guest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go.wait(PATIENCE)

    async def main() -> None:
        with Runtime(workers=1) as runtime:
            engine = small_engine(runtime)
            module = runtime.upload(guest).id
            thread = EngineThread(engine, asyncio.get_running_loop())
            try:
                free = await thread.add(Request([1, 2], max_tokens=4000))
                stream = await thread.add(Request([1, 2], controller=module, arg="ok", max_tokens=4000))
                await anext(stream)
                thread.post(hold)
                assert await asyncio.to_thread(held.wait, 60)
                os.kill(runtime.health()["workers"][0]["pid"], signal.SIGKILL)
                with pytest.raises(ApiError, match="has ended; its sequences are lost") as error:
                    async for _ in stream:
                        pass
                assert (error.value.status, error.value.code) == (503, "worker_died")
                assert not go.is_set() and free.open
                go.set()
                stream.close()
                steps = engine.stats.steps
                while engine.stats.steps < steps + 3:
                    await anext(free)
                live = [seq.control for seq in engine._pool.live.values()]
                assert live == [None], "the request is cancelled"
            finally:
                go.set()
                await asyncio.to_thread(thread.close)

    asyncio.run(main())
    (line,) = [r for r in caplog.records if "requests lost: 1" in r.message]
    assert line.levelname == "WARNING"


def test_requests_whose_end_the_engine_notices_first_are_counted(
    guest: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Callable[[], None]] = []
    monkeypatch.setattr(engine_thread, "call_at_end", lambda pid, call: ends.append(call))

    async def main() -> None:
        with Runtime(workers=1) as runtime:
            thread = EngineThread(small_engine(runtime), asyncio.get_running_loop())
            module = runtime.upload(guest).id
            try:
                stream = await thread.add(Request([1, 2], controller=module, arg="ok", max_tokens=4000))
                await anext(stream)
                os.kill(runtime.health()["workers"][0]["pid"], signal.SIGKILL)
                async for _ in stream:
                    pass
                assert stream.results is not None and isinstance(stream.results[0].error, WorkerDiedError)
                ends[0]()
            finally:
                await asyncio.to_thread(thread.close)

    asyncio.run(main())
    (line,) = [r for r in caplog.records if "requests lost: 1" in r.message]
    assert line.levelname == "WARNING"


@pytest.mark.parametrize("controller", ["guest", "regex"])
def test_stopped_worker_does_not_hold_the_engine(
    guest: bytes, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New requests begin although all controllers are in a worker that does not answer."""
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", 60.0)
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.1)

    async def main() -> None:
        with Runtime(workers=1) as runtime:
            engine = small_engine(runtime)
            module, arg = (runtime.upload(guest).id, "ok") if controller == "guest" else ("regex", "[a-z]*")
            thread = EngineThread(engine, asyncio.get_running_loop())
            worker = runtime.health()["workers"][0]["pid"]
            try:
                stream = await thread.add(Request([1, 2], controller=module, arg=arg, max_tokens=4000))
                await anext(stream)
                os.kill(worker, signal.SIGSTOP)
                free = await thread.add(Request([1, 2], max_tokens=3))
                async for _ in free:
                    pass
                assert free.results is not None and free.results[0].sampled == 3
                assert stream.open and stream.error is None
                os.kill(worker, signal.SIGCONT)
                steps = engine.stats.sampled
                while engine.stats.sampled < steps + 3:
                    await anext(stream)
            finally:
                os.kill(worker, signal.SIGCONT)
                await asyncio.to_thread(thread.close)

    asyncio.run(main())


def test_death_of_aicirt_is_an_error_for_clients_and_in_the_log(tmp_path: Path) -> None:
    with Serving(tmp_path / "log", program=("tests.pyaici.server.quick",)) as server:
        body = {
            "prompt": [1, 2, 3],
            "controller": "regex",
            "controller_arg": "[a-z]{4000}",
            "max_tokens": 4000,
        }
        grammar = {"bnf_schema": "start ::= #'[a-z]{4000}';", "max_tokens": 4000}
        message = {"model": "default", "messages": [{"role": "user", "content": "x"}], **grammar}
        with ThreadPoolExecutor() as pool, server.client() as client:
            whole = pool.submit(client.post, "/v1/messages", json=message)
            stream = client.stream("POST", "/v1/messages", json={**message, "stream": True})
            with stream as spoken, client.stream("POST", "/v1/run", json=body) as answer:
                while server.metrics()['aici_live_requests{controlled="true"}'] < 3:
                    time.sleep(0.05)
                lines, events = answer.iter_lines(), spoken.iter_lines()
                for opened in (lines, events):
                    next(line for line in opened if line.startswith("data:"))
                os.kill(next(iter(private_daemons(family(server.process.pid)))), signal.SIGKILL)
                assert "worker_died" in "".join(lines)
                failed = [line for line in events if line][-2:]
            assert failed[0] == "event: error" and '"type":"overloaded_error"' in failed[1]
            assert (whole.result().status_code, whole.result().json()["error"]["type"]) == (
                503,
                "overloaded_error",
            )
        with server.client() as client:
            refused = client.post("/v1/run", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "supervisor_died")
            assert client.get("/ready").json()["aicirt"] is False
            assert client.post("/v1/run", json={"prompt": [1], "max_tokens": 2}).status_code == 200
        server.wait_for(r"ERROR aicirt.server: aicirt \(pid \d+\) has ended")
        server.wait_for(r"WARNING aicirt.server: worker \d \(pid \d+\) has ended; requests lost: \d")
        assert server.metrics()['aici_sequences_ended_total{error="worker_died",reason="error"}'] == 3
