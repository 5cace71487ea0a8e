"""The supervisor kills a process that does not answer, unless the process gets no processor time."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

from aicirt.settings import WorkerConfig
from aicirt.supervisor.pool import WorkerPool
from tests.processes import starved


def config(silence: int) -> WorkerConfig:
    found = WorkerConfig()
    return replace(found, worker=replace(found.worker, silence_seconds=silence))


def test_process_without_processor_time_is_not_killed_as_silent() -> None:
    async def main() -> None:
        pool = WorkerPool(1, config(silence=1))
        try:
            await pool.ready()
            worker = pool.workers[0]
            with starved(worker.pid):
                await asyncio.sleep(6)
            assert worker.alive and not worker.silent
        finally:
            await pool.stop()

    asyncio.run(main())


def test_process_that_has_time_but_does_not_answer_is_killed() -> None:
    async def main() -> None:
        pool = WorkerPool(1, config(silence=1))
        try:
            await pool.ready()
            worker = pool.workers[0]
            await asyncio.sleep(1.5)  # after its first answer, the shorter limit applies
            os.kill(worker.pid, signal.SIGSTOP)
            async with asyncio.timeout(60):
                while not worker.silent or worker.alive:
                    await asyncio.sleep(0.05)
        finally:
            await pool.stop()

    asyncio.run(main())
