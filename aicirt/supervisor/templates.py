"""Templates: memoised `aici_init` snapshots, known to the supervisor by what they were made from."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

from aicirt.errors import WorkerDiedError
from aicirt.modules.info import ModuleInfo
from aicirt.modules.store import ModuleStore
from aicirt.supervisor.vocabularies import RegisteredVocabulary, sealed_file
from aicirt.supervisor.workers import WorkerProcess


class Templates:
    """Asks a worker for a template once per (worker, module, argument, vocabulary, capabilities, owner)."""

    def __init__(self, store: ModuleStore) -> None:
        self._store = store
        self._ready: dict[tuple[int, bytes], asyncio.Task[tuple[int, ModuleInfo]]] = {}
        self._known_vocabularies: set[tuple[int, int]] = set()

    async def get(
        self,
        worker: WorkerProcess,
        module: str,
        arg: bytes,
        vocabulary: RegisteredVocabulary,
        capabilities: list[list[int]],
        owner: str,
    ) -> tuple[int, ModuleInfo]:
        """The template's number in that worker, and its module. Raises what `aici_init` failed with.

        The module's artifact is checked, and compiled again if need be, when the template is made: later
        sequences do not touch it.
        """
        key = worker.generation, _digest(module, arg, vocabulary.id, capabilities, owner)
        task = self._ready.get(key)
        if task is None:
            coroutine = self._make(worker, module, arg, vocabulary, capabilities)
            task = self._ready[key] = asyncio.get_running_loop().create_task(coroutine)
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done():  # a refused argument is tried again when asked again: failures are not cached
                self._ready.pop(key, None)
            raise

    def forget(self, worker: WorkerProcess, number: int | None = None) -> None:
        """Drops what a dead worker had, or one template that it has evicted."""
        for key, task in list(self._ready.items()):
            ours = key[0] == worker.generation
            gone = number is None or (task.done() and not task.exception() and task.result()[0] == number)
            if ours and gone:
                del self._ready[key]

    async def ensure_vocabulary(self, worker: WorkerProcess, vocabulary: RegisteredVocabulary) -> None:
        """Gives a worker the vocabulary if it has not got it."""
        known = worker.generation, vocabulary.id
        if known in self._known_vocabularies:
            return
        await worker.call(
            "vocabulary",
            {
                "id": vocabulary.id,
                "image_bytes": vocabulary.image_bytes,
                "tokenizer_kind": vocabulary.tokenizer_kind,
                "tokenizer_bytes": vocabulary.tokenizer_bytes,
            },
            fds=[vocabulary.image_fd, vocabulary.tokenizer_fd],
        )
        self._known_vocabularies.add(known)

    async def _make(
        self,
        worker: WorkerProcess,
        module: str,
        arg: bytes,
        vocabulary: RegisteredVocabulary,
        capabilities: list[list[int]],
    ) -> tuple[int, ModuleInfo]:
        info = await self._store.get_async(module)
        await self.ensure_vocabulary(worker, vocabulary)
        args: dict[str, Any] = {
            "module": module,
            "path": str(self._store.artifact_path(module)),
            "arg_bytes": len(arg),
            "vocabulary": vocabulary.id,
            "capabilities": capabilities,
        }
        # a memory file: the socket holds less than an argument may have
        fd = sealed_file("aici-argument", arg)
        try:
            number = await worker.call("template", args, fds=[fd])
        finally:
            os.close(fd)
        if not isinstance(number, int):
            raise WorkerDiedError(f"worker {worker.index} answered nonsense for a template")
        return number, info


def _digest(module: str, arg: bytes, vocabulary: int, capabilities: list[list[int]], owner: str) -> bytes:
    head = repr((module, vocabulary, capabilities, owner)).encode()
    return hashlib.sha256(head + b"\0" + arg).digest()
