"""The supervisor kills a process that does not answer, unless the process gets no processor time."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from aicirt.settings import WorkerConfig
from aicirt.supervisor.fork_server import ForkServer
from aicirt.supervisor.pool import WorkerPool
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system import silence
from aicirt.system.processes import Child
from aicirt.system.silence import Progress
from lab.system.processes import starved
from lab.system.waiting import PATIENCE


def config(silence_seconds: int) -> WorkerConfig:
    found = WorkerConfig()
    return replace(found, worker=replace(found.worker, silence_seconds=silence_seconds))


def test_process_without_processor_time_is_not_killed_as_silent() -> None:
    async def main(fork_server: ForkServer) -> None:
        pool = WorkerPool(1, config(silence_seconds=1), fork_server.start)
        try:
            await pool.ready()
            worker = pool.workers[0]
            with starved(worker.pid):
                await asyncio.sleep(3)
            assert worker.alive and not worker.silent
        finally:
            await pool.stop_all()

    with closing(ForkServer()) as fork_server:
        asyncio.run(main(fork_server))


def test_process_that_has_time_but_does_not_answer_is_killed() -> None:
    async def main(fork_server: ForkServer) -> None:
        pool = WorkerPool(1, config(silence_seconds=1), fork_server.start)
        try:
            await pool.ready()
            worker = pool.workers[0]
            await asyncio.sleep(1.5)  # after its first answer, the shorter limit applies
            os.kill(worker.pid, signal.SIGSTOP)
            async with asyncio.timeout(PATIENCE):
                while not worker.silent or worker.alive:
                    await asyncio.sleep(0.05)
        finally:
            await pool.stop_all()

    with closing(ForkServer()) as fork_server:
        asyncio.run(main(fork_server))


@pytest.mark.parametrize("call", ["ping", "found"])
def test_answer_may_take_as_long_as_the_process_waits_for_a_processor(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`worker 0 did not answer within 10 s`: it had had no time to."""

    async def main(fork_server: ForkServer) -> None:
        pool = WorkerPool(1, config(silence_seconds=1), fork_server.start)
        try:
            await pool.ready()
            worker = pool.workers[0]
            monkeypatch.setattr(silence, "progress", lambda _pid, family: Progress(True, 0.0, 0.0))
            os.kill(worker.pid, signal.SIGSTOP)
            answer = asyncio.create_task(worker.ask(call, 0.2))
            await asyncio.sleep(1)
            assert not answer.done()
            os.kill(worker.pid, signal.SIGCONT)
            await answer
        finally:
            await pool.stop_all()

    with closing(ForkServer()) as fork_server:
        asyncio.run(main(fork_server))


def test_the_log_takes_a_limited_part_of_endless_output(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that has been broken out of could have filled the disk."""

    async def main() -> None:
        async def start(_: str, __: Sequence[str], files: Sequence[int], ___: int) -> Child:
            out, err = files[:2]
            endless = "while true; do yes '\x1b[31mred'; done"
            return Child(subprocess.Popen(["sh", "-c", endless], stdout=out, stderr=err).pid)

        worker = WorkerProcess(0, 1, WorkerConfig(), start, lambda _: None, lambda _, __: None)
        try:
            await worker._starting
            async with asyncio.timeout(PATIENCE):
                while worker._output._omitted < 1_000_000:
                    assert worker.alive
                    await asyncio.sleep(0.05)
        finally:
            worker.end()

    asyncio.run(main())
    log = capsys.readouterr().err
    assert 60_000 < len(log) < 200_000
    assert "\\x1b[31mred\n" in log and "\x1b" not in log
    (omitted,) = re.findall(r"worker 0 wrote more: (\d+) bytes left out", caplog.text)
    assert int(omitted) > 1_000_000


def test_the_last_words_of_a_process_are_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async def start(_: str, __: Sequence[str], files: Sequence[int], ___: int) -> Child:
            return Child(subprocess.Popen(["sh", "-c", "echo panicked >&2"], stderr=files[1]).pid)

        died = asyncio.Event()
        worker = WorkerProcess(0, 1, WorkerConfig(), start, lambda _: died.set(), lambda _, __: None)
        async with asyncio.timeout(PATIENCE):
            await died.wait()
        assert not worker.alive

    asyncio.run(main())
    assert "panicked\n" in capsys.readouterr().err
