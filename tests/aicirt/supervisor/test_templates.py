"""Templates that the supervisor keeps: a bounded number, and none that failed, whoever waited for it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from aicirt.config import WorkerConfig
from aicirt.errors import TimeLimitError, UnknownModuleError, VocabularyError
from aicirt.modules import ModuleStore
from aicirt.settings import DaemonSettings
from aicirt.supervisor.compilations import Compilations
from aicirt.supervisor.pool import WorkerPool
from aicirt.supervisor.templates import Built, Templates
from aicirt.supervisor.vocabularies import RegisteredVocabulary, Vocabularies

#: refuses an argument of three bytes after as long as it may take
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

    def __init__(self, pool: WorkerPool, templates: Templates, vocabulary: RegisteredVocabulary, module: str):
        self.pool = pool
        self.templates = templates
        self._vocabulary = vocabulary
        self.module = module

    async def build(self, arg: bytes) -> Built:
        return await self.templates.build(self.module, arg, self._vocabulary, [], "somebody")

    async def adopt(self, arg: bytes) -> int:
        return await self.templates.adopt(self.pool.place(), await self.build(arg))

    @property
    def kept(self) -> tuple[int, int]:
        return len(self.templates._built), len(self.templates._adopted)


def vocabularies() -> Vocabularies:
    settings = DaemonSettings()
    return Vocabularies(settings, Compilations(settings, time.monotonic).turn, lambda _: None)


def run(folder: Path, test: Callable[[Setup], Awaitable[None]]) -> None:
    async def main() -> None:
        store = ModuleStore(folder / "store")
        info = await store.add_async(bytes(WASM))
        config = WorkerConfig()
        config = replace(config, limits=replace(config.limits, init_ms=300.0))
        config = replace(config, worker=replace(config.worker, max_templates=3), code=str(store.code))
        pool = WorkerPool(1, config)
        try:
            await pool.ready()
            vocabulary = await vocabularies().register("v", VOCABULARY, "o", 1)
            await test(Setup(pool, Templates(store, config.worker, pool.builder_for), vocabulary, info.id))
        finally:
            await pool.stop()

    asyncio.run(main())


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        for number in range(10):
            await setup.adopt(b"%05d" % number)
            await setup.adopt(b"00000")  # used again and again
            assert max(setup.kept) <= 3
        assert setup.kept == (3, 3)
        assert (await setup.pool.builder.call("ping", {}))["built"] == 10

    run(tmp_path, test)


def test_what_fails_is_not_kept_though_nobody_waits_for_it(tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        waiting = asyncio.create_task(setup.build(b"bad"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert setup.kept == (1, 0)
        async with asyncio.timeout(30):
            while setup.kept != (0, 0):
                await asyncio.sleep(0.01)
        with pytest.raises(TimeLimitError):
            await setup.build(b"bad")
        assert setup.kept == (0, 0)

    run(tmp_path, test)


def test_what_was_given_up_before_a_worker_had_it_is_not_kept(tmp_path: Path) -> None:
    async def test(setup: Setup) -> None:
        old = await setup.build(b"older")
        for number in range(5):
            await setup.build(b"%05d" % number)
        assert await setup.templates.adopt(setup.pool.place(), old) > 0
        await asyncio.sleep(0)
        assert setup.kept == (3, 0)

    run(tmp_path, test)


def test_nothing_is_kept_of_a_module_that_is_removed(tmp_path: Path) -> None:
    """Neither what was built, nor what is being built when it goes."""

    async def test(setup: Setup) -> None:
        await setup.adopt(b"done")
        builder = setup.pool.builder
        os.kill(builder.pid, signal.SIGSTOP)
        try:
            waiting = asyncio.create_task(setup.build(b"coming"))
            async with asyncio.timeout(30):
                while not builder.asked:
                    await asyncio.sleep(0.01)
            assert ModuleStore(tmp_path / "store").remove(setup.module, force=True)
            setup.templates.forget_module(setup.module)
        finally:
            os.kill(builder.pid, signal.SIGCONT)
        with pytest.raises(UnknownModuleError, match="has been removed"):
            await waiting
        assert setup.kept == (0, 0)
        with pytest.raises(UnknownModuleError, match="no module"):
            await setup.build(b"done")

    run(tmp_path, test)


def test_a_vocabulary_that_fails_is_not_kept_though_nobody_waits_for_it() -> None:
    async def main() -> None:
        known = vocabularies()
        waiting = asyncio.create_task(known.register("bad", {**VOCABULARY, "eos": [9999]}, "o", 1))
        await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(30):
            while known._by_fingerprint:
                await asyncio.sleep(0.01)
        with pytest.raises(VocabularyError):
            await known.register("bad", {**VOCABULARY, "eos": [9999]}, "o", 1)
        assert not known._by_fingerprint and not known.all()

    asyncio.run(main())
