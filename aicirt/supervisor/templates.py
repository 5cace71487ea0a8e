"""Templates: memoised `aici_init` snapshots, built once by the builder, adopted by workers that need them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import AiciError, UnknownModuleError, WorkerDiedError, error_from_wire
from aicirt.contract.modules import ModuleInfo
from aicirt.modules.store import FairTurns, ModuleStore
from aicirt.settings import WorkerSettings
from aicirt.supervisor.vocabularies import RegisteredVocabulary, sealed_file
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.files import Descriptor
from aicirt.system.logs import fields

_log = logging.getLogger("aicirt.supervisor")


@dataclass(frozen=True, slots=True)
class Built:
    """The snapshot after `aici_init`. The builder's description of it is only passed on: workers check it."""

    digest: bytes
    info: ModuleInfo
    vocabulary: RegisteredVocabulary
    #: arguments of the call "adopt", and its files
    call: dict[str, Any]
    files: list[Descriptor]
    nbytes: int
    owner: str
    #: how often its tables have been filled further
    warmth: int = 0


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A template that a worker has, or is about to have, under this number."""

    worker: WorkerProcess
    number: asyncio.Task[int]


class Templates:
    """Knows what is built, by (module, argument, vocabulary, capabilities, owner), and which worker has it.

    The least recently used are given up beyond a number or their bytes; what fails is not kept. One may be
    replaced by a better one of the same: sequences that start from then on start from that.
    """

    def __init__(
        self,
        store: ModuleStore,
        settings: WorkerSettings,
        builder: Callable[[str], WorkerProcess],
        turns: FairTurns,
    ) -> None:
        """`builder` returns the process that runs `aici_init` for an owner, which waits for its `turns`."""
        self._turns = turns
        #: by which the builder is told to end a build
        self._numbers = itertools.count(1)
        #: how many wait for what is being built
        self._waiters: Counter[asyncio.Future[Built]] = Counter()
        self._store = store
        self._settings = settings
        self._builder = builder
        self._built: OrderedDict[bytes, asyncio.Future[Built]] = OrderedDict()
        #: by generation of the worker and digest
        self._adopted: dict[tuple[int, bytes], _Adopted] = {}
        #: how many had to go for others
        self.counters: Counter[str] = Counter()
        self._renewals: set[asyncio.Task[None]] = set()
        #: called with each new one
        self.on_built: Callable[[Built], None] | None = None
        self._known_vocabularies: set[tuple[int, int]] = set()

    async def build(
        self,
        module: str,
        arg: bytes,
        vocabulary: RegisteredVocabulary,
        capabilities: list[list[int]],
        owner: str,
    ) -> Built:
        """Raises what `aici_init` failed with, and OwnerLimitError if too much of the owner waits already.

        A build that nobody waits for any more is ended. The module's artifact is checked, and compiled again
        if need be, when the template is built: later sequences do not touch it.
        """
        digest = _digest(module, arg, vocabulary.id, capabilities, owner)
        task = self._built.get(digest)
        if task is None:
            coroutine = self._build(digest, module, arg, vocabulary, capabilities, owner)
            task = self._built[digest] = asyncio.get_running_loop().create_task(coroutine)
            task.add_done_callback(lambda task: self._settle_built(digest, task))
        self._built.move_to_end(digest)
        self._waiters[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiters[task] -= 1
            if not self._waiters[task]:
                del self._waiters[task]
                if not task.done():
                    self._end(digest, task)

    def _end(self, digest: bytes, task: asyncio.Future[Built]) -> None:
        """Cancels a build that no caller waits for; later requests for the same start another one."""
        task.cancel()
        if self._built.get(digest) is task:
            del self._built[digest]

    async def adopt(self, worker: WorkerProcess, built: Built) -> int:
        """The template's number in that worker. Raises WorkerDiedError."""
        key = worker.generation, built.digest
        adopted = self._adopted.get(key)
        if adopted is None:
            newest = self.current(built.digest) or built
            task = asyncio.get_running_loop().create_task(self._adopt(worker, newest))
            adopted = self._adopted[key] = _Adopted(worker, task)
            task.add_done_callback(lambda _: self._settle_adopted(key, adopted))
        return await asyncio.shield(adopted.number)

    def current(self, digest: bytes) -> Built | None:
        """Returns the template if it is built and has not been given up."""
        task = self._built.get(digest)
        return task.result() if task is not None and _succeeded(task) else None

    def replace(self, old: Built, new: Built) -> bool:
        """Puts `new` in the place of `old`, here and in every worker that has it.

        False if `old` has been given up, or others would have to be for the bytes that `new` has more.
        """
        if self.current(old.digest) is not old:
            return False
        kept = [task.result() for task in self._built.values() if _succeeded(task)]
        growth, settings = new.nbytes - old.nbytes, self._settings
        own = sum(built.nbytes for built in kept if built.owner == old.owner)
        total = sum(built.nbytes for built in kept)
        if growth > 0 and (
            own + growth > settings.owner_snapshot_bytes or total + growth > settings.snapshot_bytes
        ):
            return False
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Built] = loop.create_future()
        done.set_result(new)
        self._built[old.digest] = done  # it keeps its place among the others
        for (_, digest), adopted in self._adopted.items():
            if digest == old.digest:
                renewal = loop.create_task(self._renew(adopted, new))
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewals.discard)
        return True

    def stats(self) -> dict[str, int]:
        """How many there are, those of which tables have been filled, and bytes of all."""
        kept = [task.result() for task in self._built.values() if _succeeded(task)]
        return {
            "kept": len(kept),
            "warm": sum(built.warmth > 0 for built in kept),
            "bytes": sum(built.nbytes for built in kept),
        }

    def forget(self, worker: WorkerProcess, number: int | None = None) -> None:
        """Drops what a dead worker had, or one template that it has given up."""
        for key, adopted in list(self._adopted.items()):
            task = adopted.number
            gone = number is None or (_succeeded(task) and task.result() == number)
            if key[0] == worker.generation and gone:
                del self._adopted[key]
        if number is None:
            self._known_vocabularies = {k for k in self._known_vocabularies if k[0] != worker.generation}

    def forget_vocabulary(self, vocabulary: RegisteredVocabulary) -> None:
        """Drops what nobody can ask for any more."""
        self._forget(lambda built: built.vocabulary is vocabulary)
        self._known_vocabularies = {k for k in self._known_vocabularies if k[1] != vocabulary.id}

    def forget_module(self, module: str) -> None:
        """Drops what was built of a module that is stored no more; what is being built finds that out."""
        self._forget(lambda built: built.info.id == module)

    def _forget(self, unwanted: Callable[[Built], bool]) -> None:
        done = {key: task.result() for key, task in self._built.items() if _succeeded(task)}
        gone = {key for key, built in done.items() if unwanted(built)}
        for key in gone:
            del self._built[key]
        self._adopted = {key: adopted for key, adopted in self._adopted.items() if key[1] not in gone}

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
        call: dict[str, Any] = {
            "module": module,
            "path": self._store.artifact_path(module).name,
            "arg_bytes": len(arg),
            "vocabulary": vocabulary.id,
            "capabilities": capabilities,
            "owner": owner,
        }
        # a memory file: the socket holds less than an argument may have
        argument = Descriptor(sealed_file("aici-argument", arg))
        async with self._turns(owner, len(arg)) as spent:
            builder = self._builder(owner)
            await self.ensure_vocabulary(builder, vocabulary)
            built, files = await self._have_built(builder, call, argument, spent)
        if not self._store.has(module):
            raise UnknownModuleError(f"module {module} has been removed")
        nbytes = snapshot_bytes(built) + len(arg)
        call["built"] = built
        return Built(digest, info, vocabulary, call, [argument, *files[:1]], nbytes, owner)

    async def _have_built(
        self,
        builder: WorkerProcess,
        call: dict[str, Any],
        argument: Descriptor,
        spent: Callable[[float], None],
    ) -> tuple[Any, list[Descriptor]]:
        """Returns what the builder has made. When cancelled, it returns once the builder has ended the work:
        until then the owner has no other turn."""
        number = next(self._numbers)
        exchange = asyncio.get_running_loop().create_task(
            builder.exchange("build", {**call, "build": number}, fds=[argument.fd])
        )
        try:
            answer, files = await asyncio.shield(exchange)
        except asyncio.CancelledError:
            builder.tell("cancel", {"build": number})
            await asyncio.wait([exchange])
            raise
        finally:
            if exchange.done() and not exchange.cancelled() and exchange.exception() is None:
                spent(_cpu_seconds(exchange.result()[0]))
        if (error := answer.get("error")) is not None:
            try:
                raise error_from_wire(error)
            except (TypeError, ValueError):
                raise WorkerDiedError("the builder answered nonsense") from None
        return answer.get("built"), files

    async def _adopt(self, worker: WorkerProcess, built: Built) -> int:
        await self.ensure_vocabulary(worker, built.vocabulary)
        number = await worker.call("adopt", built.call, fds=[file.fd for file in built.files])
        if not isinstance(number, int):
            raise WorkerDiedError(f"worker {worker.index} answered nonsense for a template")
        return number

    async def _renew(self, adopted: _Adopted, new: Built) -> None:
        """A worker that cannot take it goes on with what it has, until it has given that up."""
        try:
            number = await asyncio.shield(adopted.number)
            call = {**new.call, "replaces": number}
            await adopted.worker.call("adopt", call, fds=[file.fd for file in new.files])
        except WorkerDiedError:
            pass
        except AiciError as error:
            problem = "%s does not take a template with more in its tables: %s"
            about = fields(worker=adopted.worker.index, code=error.code)
            _log.error(problem, adopted.worker.name, error.code, extra=about)

    def _settle_built(self, digest: bytes, task: asyncio.Task[Built]) -> None:
        self._settle(digest, task)
        if self.on_built is not None and self._built.get(digest) is task and _succeeded(task):
            self.on_built(task.result())

    def _settle(self, digest: bytes, task: asyncio.Task[Built]) -> None:
        """Keeps what was built, within the limits."""
        if not _succeeded(task) and self._built.get(digest) is task:
            del self._built[digest]  # an argument that was refused is tried again when it comes again
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
            self.counters["templates_given_up"] += 1
            del self._built[key]
            for adopted in [k for k in self._adopted if k[1] == key]:
                del self._adopted[adopted]

    def _settle_adopted(self, key: tuple[int, bytes], adopted: _Adopted) -> None:
        """Keeps it as long as what was built is kept."""
        failed = not _succeeded(adopted.number) and self._adopted.get(key) is adopted
        if failed or key[1] not in self._built:
            self._adopted.pop(key, None)


def snapshot_bytes(answer: Any) -> int:
    """Bytes of the snapshot that the builder describes. Raises WorkerDiedError if it does not."""
    if not isinstance(answer, dict) or not isinstance(answer.get("nbytes"), int):
        raise WorkerDiedError("the builder answered nonsense")
    nbytes: int = answer["nbytes"]
    return max(0, nbytes)


def _cpu_seconds(answer: Any) -> float:
    """CPU time that a build has taken, as the builder says. Raises WorkerDiedError if it does not."""
    seconds = answer.get("cpu_s") if isinstance(answer, dict) else None
    if not isinstance(seconds, float) or not math.isfinite(seconds):
        raise WorkerDiedError("the builder answered nonsense")
    return max(0.0, seconds)


def _succeeded(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _digest(module: str, arg: bytes, vocabulary: int, capabilities: list[list[int]], owner: str) -> bytes:
    head = repr((module, vocabulary, capabilities, owner)).encode()
    return hashlib.sha256(head + b"\0" + arg).digest()
