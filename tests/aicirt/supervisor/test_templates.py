"""Templates that the supervisor keeps: their number is bounded, and failed builds are not kept."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import OwnerLimitError, TimeLimitError, UnknownControllerError, VocabularyError
from aicirt.modules.store import ModuleStore
from aicirt.settings import DaemonSettings, WorkerConfig
from aicirt.supervisor.fair_queue import FairQueue, builds, compilations
from aicirt.supervisor.fork_server import ForkServer
from aicirt.supervisor.pool import WorkerPool
from aicirt.supervisor.templates import Built, Templates
from aicirt.supervisor.vocabularies import RegisteredVocabulary, Vocabularies
from aicirt.vocab.image import fingerprint_of
from lab.system.waiting import PATIENCE

#: loops in aici_init, until the time limit, for an argument of three bytes
WASM = wat2wasm("""(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (data (i32.const 16) "\\a8\\00\\00\\00")
  (func (export "aici_arg") (result i32) (i32.const 16))
  (func (export "aici_init") (param $n i32) (result i32)
    (if (i32.eq (local.get $n) (i32.const 3)) (then (loop $l (br $l)))) (i32.const 0))
  (func (export "aici_mid_process") (result i32) unreachable))""")
VOCABULARY: dict[str, Any] = {
    "tokens": [bytes([i]) for i in range(256)],
    "special": {},
    "eos": [],
    "vocab_size": 256,
    "tokenizer_kind": "longest",
    "tokenizer_data": b"",
}


class Setup:
    """A worker, a builder, and one module."""

    def __init__(
        self,
        pool: WorkerPool,
        queue: FairQueue,
        templates: Templates,
        vocabulary: RegisteredVocabulary,
        module: str,
    ):
        self.pool = pool
        self.queue = queue
        self.templates = templates
        self._vocabulary = vocabulary
        self.module = module

    async def build(self, arg: bytes, owner: str = "ann") -> Built:
        return await self.templates.build(self.module, arg, self._vocabulary, [], owner)

    async def send_vocabulary(self) -> None:
        await self.templates.ensure_vocabulary(self.pool.builder, self._vocabulary)

    async def built(self) -> int:
        """Returns the number of builds that have reached the builder."""
        return int((await self.pool.builder.call("ping", {}))["built"])

    async def adopt(self, arg: bytes) -> int:
        return await self.templates.adopt(self.pool.choose_worker(), await self.build(arg))

    @property
    def kept(self) -> tuple[int, int]:
        return len(self.templates._built), len(self.templates._adopted)


def vocabularies() -> Vocabularies:
    settings = DaemonSettings()
    return Vocabularies(settings, compilations(settings, time.monotonic).turn, lambda _: None)


Run = Callable[..., None]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a function of a `Setup` in a folder. All setups are forked by one process, in one event loop."""

    async def main(folder: Path, test: Callable[[Setup], Awaitable[None]], init_ms: float) -> None:
        store = ModuleStore(folder / "store")
        info = await store.add_async(bytes(WASM))
        config = WorkerConfig()
        config = replace(config, limits=replace(config.limits, init_ms=init_ms))
        config = replace(config, worker=replace(config.worker, max_templates=3), code=str(store.code))
        pool = WorkerPool(1, config, fork_server.start)
        try:
            await pool.ready()
            vocabulary = await vocabularies().register(fingerprint_of(VOCABULARY), VOCABULARY, "o", 1)
            queue = builds(DaemonSettings(owner_build_queue=4), time.monotonic)
            templates = Templates(store, config.worker, pool.builder_for, queue.turn)
            await test(Setup(pool, queue, templates, vocabulary, info.id))
        finally:
            await pool.stop_all()

    with asyncio.Runner() as runner, closing(ForkServer()) as fork_server:
        yield lambda folder, test, init_ms=300.0: runner.run(main(folder, test, init_ms))


def test_number_of_kept_templates_is_limited(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        for number in range(10):
            await setup.adopt(b"%05d" % number)
            await setup.adopt(b"00000")  # used again and again
            assert max(setup.kept) <= 3
        assert setup.kept == (3, 3)
        assert await setup.built() == 10

    run(tmp_path, test)


def test_owner_with_many_templates_evicts_only_their_own(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        await setup.build(b"00000", "modest")
        for number in range(5):
            await setup.build(b"%05d" % number, "greedy")
        await setup.build(b"00000", "modest")
        assert await setup.built() == 6

    run(tmp_path, test)


def test_failed_build_is_not_kept(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        for _ in range(2):
            with pytest.raises(TimeLimitError):
                await setup.build(b"bad")
            assert setup.kept == (0, 0)

    run(tmp_path, test)


def test_uploads_learn_nothing_where_an_owner_may_be_several_people(run: Run, tmp_path: Path) -> None:
    """A server calls everybody without a token anonymous. Controllers of the operator may learn."""

    async def test(setup: Setup) -> None:
        assert (await setup.build(b"1", "ann")).may_learn
        assert not (await setup.build(b"1", "anonymous 10.0.0.1")).may_learn
        claim = setup.templates._store.ownership.claim
        claim(setup.module, "anonymous 10.0.0.1")
        assert not (await setup.build(b"2", "anonymous 10.0.0.1")).may_learn
        claim(setup.module, "local")
        assert (await setup.build(b"3", "anonymous 10.0.0.1")).may_learn

    run(tmp_path, test)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


async def cancel(*tasks: asyncio.Task[Built]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError)


def test_build_without_waiters_is_ended_and_keeps_its_turn_until_then(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        await setup.send_vocabulary()  # so that the build is the only thing that the builder is asked for
        two = [asyncio.create_task(setup.build(b"bad")) for _ in range(2)]
        await until(lambda: setup.pool.builder.asked > 0)
        await cancel(two[0])
        assert setup.kept == (1, 0) and setup.queue.count_turns()["running"] == 1, (
            "the other task still waits for it"
        )
        os.kill(setup.pool.builder.pid, signal.SIGSTOP)
        try:
            await cancel(two[1])
            assert setup.kept == (0, 0)
            await asyncio.sleep(0.05)
            assert setup.queue.count_turns()["running"] == 1, "the builder has not ended it yet"
        finally:
            os.kill(setup.pool.builder.pid, signal.SIGCONT)
        await until(lambda: not setup.queue.count_turns()["running"])
        assert (await setup.pool.builder.call("ping", {}))["counters"] == {"runtime": 1}
        with pytest.raises(TimeLimitError):
            await setup.build(b"bad")

    # long enough to stop the builder, on a busy machine too, before the limit ends the build
    run(tmp_path, test, init_ms=3000.0)


def test_running_and_waiting_builds_per_owner_are_limited(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        os.kill(setup.pool.builder.pid, signal.SIGSTOP)
        try:
            tasks = [asyncio.create_task(setup.build(b"%05d" % number)) for number in range(6)]
            await until(lambda: setup.queue.count_turns() == {"running": 2, "waiting": 4})
            with pytest.raises(OwnerLimitError, match=r"5 builds would wait for owner.*build_queue"):
                await setup.build(b"too many")
            others = asyncio.create_task(setup.build(b"00000", "bob"))
            await until(lambda: setup.queue.count_turns() == {"running": 3, "waiting": 4})
            await cancel(*tasks[2:])
            assert setup.queue.count_turns() == {"running": 3, "waiting": 0}, (
                "they are dropped from the queue"
            )
        finally:
            os.kill(setup.pool.builder.pid, signal.SIGCONT)
        await asyncio.gather(*tasks[:2], others)
        assert await setup.built() == 3
        assert setup.queue.count_turns() == {"running": 0, "waiting": 0}
        assert set(setup.queue._used) == {"ann", "bob"}, "the builder reports the time used"

    run(tmp_path, test)


def test_adopting_an_evicted_template_does_not_keep_it(run: Run, tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        old = await setup.build(b"older")
        for number in range(5):
            await setup.build(b"%05d" % number)
        assert await setup.templates.adopt(setup.pool.choose_worker(), old) > 0
        await asyncio.sleep(0)
        assert setup.kept == (3, 0)

    run(tmp_path, test)


def test_templates_of_a_removed_module_are_dropped(run: Run, tmp_path: Path) -> None:
    """Holds for finished templates and for builds that are in progress."""

    async def test(setup: Setup) -> None:
        await setup.adopt(b"done")
        builder = setup.pool.builder
        os.kill(builder.pid, signal.SIGSTOP)
        try:
            waiting = asyncio.create_task(setup.build(b"coming"))
            async with asyncio.timeout(PATIENCE):
                while not builder.asked:
                    await asyncio.sleep(0.01)
            assert ModuleStore(tmp_path / "store").remove(setup.module, force=True)
            setup.templates.forget_module(setup.module)
        finally:
            os.kill(builder.pid, signal.SIGCONT)
        with pytest.raises(UnknownControllerError, match="has been removed"):
            await waiting
        assert setup.kept == (0, 0)
        with pytest.raises(UnknownControllerError, match="no module"):
            await setup.build(b"done")

    run(tmp_path, test)


def test_failed_vocabulary_without_waiters_is_not_kept() -> None:
    async def main() -> None:
        known = vocabularies()
        bad = {**VOCABULARY, "eos": [9999]}
        waiting = asyncio.create_task(known.register(fingerprint_of(bad), bad, "o", 1))
        while not known._by_fingerprint:
            await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(PATIENCE):
            while known._by_fingerprint:
                await asyncio.sleep(0.01)
        with pytest.raises(VocabularyError):
            await known.register(fingerprint_of(bad), bad, "o", 1)
        assert not known._by_fingerprint and not known.all()

    asyncio.run(main())
