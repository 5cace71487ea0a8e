"""Templates: memoised `aici_init` snapshots, built once by the builder, adopted by workers that need them."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aicirt.descriptor import Descriptor
from aicirt.errors import WorkerDiedError
from aicirt.modules.info import ModuleInfo
from aicirt.modules.store import ModuleStore
from aicirt.settings import WorkerSettings
from aicirt.supervisor.vocabularies import RegisteredVocabulary, sealed_file
from aicirt.supervisor.workers import WorkerProcess

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Built:
    """What `aici_init` left. What the builder said of it is only passed on: workers check it."""

    digest: bytes
    info: ModuleInfo
    vocabulary: RegisteredVocabulary
    #: arguments of the call "adopt", and its files
    call: dict[str, Any]
    files: list[Descriptor]
    nbytes: int
    owner: str


class Templates:
    """Knows what is built, by (module, argument, vocabulary, capabilities, owner), and which worker has it.

    The least recently used are given up beyond a number or their bytes; what fails is not kept.
    """

    def __init__(
        self, store: ModuleStore, settings: WorkerSettings, builder: Callable[[], WorkerProcess]
    ) -> None:
        """`builder` returns the process that runs `aici_init`."""
        self._store = store
        self._settings = settings
        self._builder = builder
        self._built: OrderedDict[bytes, asyncio.Task[Built]] = OrderedDict()
        #: (generation of the worker, digest) -> number there
        self._adopted: dict[tuple[int, bytes], asyncio.Task[int]] = {}
        self._known_vocabularies: set[tuple[int, int]] = set()

    async def build(
        self,
        module: str,
        arg: bytes,
        vocabulary: RegisteredVocabulary,
        capabilities: list[list[int]],
        owner: str,
    ) -> Built:
        """Raises what `aici_init` failed with.

        The module's artifact is checked, and compiled again if need be, when the template is built: later
        sequences do not touch it.
        """
        digest = _digest(module, arg, vocabulary.id, capabilities, owner)
        task = self._built.get(digest)
        if task is None:
            coroutine = self._build(digest, module, arg, vocabulary, capabilities, owner)
            task = self._built[digest] = asyncio.get_running_loop().create_task(coroutine)
            task.add_done_callback(lambda task: self._settle(digest, task))
        self._built.move_to_end(digest)
        return await asyncio.shield(task)

    async def adopt(self, worker: WorkerProcess, built: Built) -> int:
        """The template's number in that worker. Raises WorkerDiedError."""
        key = worker.generation, built.digest
        task = self._adopted.get(key)
        if task is None:
            task = self._adopted[key] = asyncio.get_running_loop().create_task(self._adopt(worker, built))
            task.add_done_callback(lambda task: self._settle_adopted(key, task))
        return await asyncio.shield(task)

    def forget(self, worker: WorkerProcess, number: int | None = None) -> None:
        """Drops what a dead worker had, or one template that it has given up."""
        for key, task in list(self._adopted.items()):
            gone = number is None or (_succeeded(task) and task.result() == number)
            if key[0] == worker.generation and gone:
                del self._adopted[key]
        if number is None:
            self._known_vocabularies = {k for k in self._known_vocabularies if k[0] != worker.generation}

    def forget_vocabulary(self, vocabulary: RegisteredVocabulary) -> None:
        """Drops what nobody can ask for any more."""
        done = {key: task.result() for key, task in self._built.items() if _succeeded(task)}
        gone = {key for key, built in done.items() if built.vocabulary is vocabulary}
        for key in gone:
            del self._built[key]
        self._adopted = {key: adopted for key, adopted in self._adopted.items() if key[1] not in gone}
        self._known_vocabularies = {k for k in self._known_vocabularies if k[1] != vocabulary.id}

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
            fds=[vocabulary.image.fd, vocabulary.tokenizer.fd],
        )
        self._known_vocabularies.add(known)

    async def _build(
        self,
        digest: bytes,
        module: str,
        arg: bytes,
        vocabulary: RegisteredVocabulary,
        capabilities: list[list[int]],
        owner: str,
    ) -> Built:
        info = await self._store.get_async(module, owner)
        builder = self._builder()
        await self.ensure_vocabulary(builder, vocabulary)
        call: dict[str, Any] = {
            "module": module,
            "path": str(self._store.artifact_path(module)),
            "arg_bytes": len(arg),
            "vocabulary": vocabulary.id,
        }
        # a memory file: the socket holds less than an argument may have
        argument = Descriptor(sealed_file("aici-argument", arg))
        answer, files = await builder.exchange(
            "build", {**call, "capabilities": capabilities}, fds=[argument.fd]
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("nbytes"), int):
            raise WorkerDiedError("the builder answered nonsense")
        nbytes = max(0, answer["nbytes"]) + len(arg)
        call["built"] = answer
        return Built(digest, info, vocabulary, call, [argument, *files[:1]], nbytes, owner)

    async def _adopt(self, worker: WorkerProcess, built: Built) -> int:
        await self.ensure_vocabulary(worker, built.vocabulary)
        number = await worker.call("adopt", built.call, fds=[file.fd for file in built.files])
        if not isinstance(number, int):
            raise WorkerDiedError(f"worker {worker.index} answered nonsense for a template")
        return number

    def _settle(self, digest: bytes, task: asyncio.Task[Built]) -> None:
        """Keeps what was built, within the limits."""
        _drop_failed(self._built, digest, task)
        done = {key: task.result() for key, task in self._built.items() if _succeeded(task)}
        if digest not in done:
            return
        settings = self._settings
        own = [key for key in done if done[key].owner == done[digest].owner]
        self._give_up(own, done, len(own), settings.owner_snapshot_bytes)
        left = [key for key in done if key in self._built]
        self._give_up(left, done, settings.max_templates, settings.snapshot_bytes)

    def _give_up(self, keys: list[bytes], done: dict[bytes, Built], number: int, nbytes: int) -> None:
        """The first of `keys`, until at most `number` of at most `nbytes` are left; never the last."""
        total = sum(done[key].nbytes for key in keys)
        for place, key in enumerate(keys[:-1]):
            if len(keys) - place <= number and total <= nbytes:
                break
            total -= done[key].nbytes
            del self._built[key]
            for adopted in [k for k in self._adopted if k[1] == key]:
                del self._adopted[adopted]

    def _settle_adopted(self, key: tuple[int, bytes], task: asyncio.Task[int]) -> None:
        """Keeps it as long as what was built is kept."""
        _drop_failed(self._adopted, key, task)
        if key[1] not in self._built:
            self._adopted.pop(key, None)


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _drop_failed(tasks: dict[_Key, asyncio.Task[Any]], key: _Key, task: asyncio.Task[Any]) -> None:
    """An argument that was refused is tried again when it comes again."""
    if not _succeeded(task) and tasks.get(key) is task:
        del tasks[key]


def _digest(module: str, arg: bytes, vocabulary: int, capabilities: list[list[int]], owner: str) -> bytes:
    head = repr((module, vocabulary, capabilities, owner)).encode()
    return hashlib.sha256(head + b"\0" + arg).digest()
