"""Templates: memoised `aici_init` snapshots, built once by the builder and adopted by workers."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from aicirt.contract.errors import AiciError, UnknownControllerError, WorkerDiedError, error_from_wire
from aicirt.contract.modules import ControllerInfo
from aicirt.contract.owners import DEFAULT_OWNER, is_one_person, to_evict
from aicirt.modules.store import FairTurns, ModuleStore
from aicirt.settings import WorkerSettings
from aicirt.supervisor.vocabularies import RegisteredVocabulary
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.files import Descriptor, sealed_bytes
from aicirt.system.logs import fields

_log = logging.getLogger("aicirt.supervisor")


@dataclass(frozen=True, slots=True)
class Built:
    """The snapshot after `aici_init`. Workers, not the supervisor, check the builder's description of it."""

    digest: bytes
    info: ControllerInfo
    vocabulary: RegisteredVocabulary
    #: arguments and files of the call "adopt"
    call: dict[str, Any]
    files: list[Descriptor]
    nbytes: int
    owner: str
    #: Whether it may learn from sequences. An uploaded module could report the prompt of one person to the
    #: next one, so it must be the operator's, as the bundled ones are, or the owner a single person.
    may_learn: bool
    #: number of warming stages that are done
    warmth: int = 0
    #: number of sequences whose profiles it contains
    learned: int = 0
    #: bytes by which both have made it larger
    grown: int = 0


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A template that a worker has adopted or is adopting, and its number there."""

    worker: WorkerProcess
    number: asyncio.Task[int]


class Templates:
    """Templates by (module, argument, vocabulary, capabilities, owner), and the workers that have them.

    Beyond a number or a total of bytes the least recently used of the owner with the most are evicted. Failed
    builds are not kept. A warmer template may replace one with the same key: sequences that start later use
    the warmer one.
    """

    def __init__(
        self,
        store: ModuleStore,
        settings: WorkerSettings,
        builder: Callable[[str], WorkerProcess],
        turns: FairTurns,
    ) -> None:
        """`builder` returns the process that runs `aici_init` for an owner; builds wait for `turns`."""
        self._turns = turns
        #: numbers of builds, for cancelling them in the builder
        self._numbers = itertools.count(1)
        #: number of callers that wait for each build
        self._waiters: Counter[asyncio.Future[Built]] = Counter()
        self._store = store
        self._settings = settings
        self._builder = builder
        self._built: OrderedDict[bytes, asyncio.Future[Built]] = OrderedDict()
        #: by generation of the worker and digest
        self._adopted: dict[tuple[int, bytes], _Adopted] = {}
        #: evicted templates
        self.counters: Counter[str] = Counter()
        #: builds that were begun, and calls of `build` that found a template or a build under way
        self._begun = self._found = 0
        self._renewals: set[asyncio.Task[None]] = set()
        #: called with each new template
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
        """Returns the template, which is built if there is none.

        A build is cancelled when no caller waits for it. The module's artifact is checked, and compiled again
        if necessary, when the template is built: later sequences do not touch the artifact. Raises the error
        of `aici_init`, and OwnerLimitError if the owner has too much waiting already.
        """
        digest = _digest(module, arg, vocabulary.id, capabilities, owner)
        task = self._built.get(digest)
        if task is not None:
            self._found += 1
        else:
            self._begun += 1
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
        """Has a worker adopt the template, once; returns its number there. Raises WorkerDiedError."""
        if len(worker.owners) < 2:
            worker.owners.add(built.owner)
        key = worker.generation, built.digest
        adopted = self._adopted.get(key)
        if adopted is None:
            newest = self.current(built.digest) or built
            task = asyncio.get_running_loop().create_task(self._adopt(worker, newest))
            adopted = self._adopted[key] = _Adopted(worker, task)
            task.add_done_callback(lambda _: self._settle_adopted(key, adopted))
        return await asyncio.shield(adopted.number)

    def current(self, digest: bytes) -> Built | None:
        """Returns the template if it is built and has not been evicted."""
        task = self._built.get(digest)
        return task.result() if task is not None and _succeeded(task) else None

    def adopted(self, worker: WorkerProcess, number: int) -> Built | None:
        """Returns the template that has this number in a worker."""
        for (generation, digest), adopted in self._adopted.items():
            task = adopted.number
            if generation == worker.generation and _succeeded(task) and task.result() == number:
                return self.current(digest)
        return None

    def replace(self, old: Built, new: Built) -> bool:
        """Puts `new` in the place of `old`, here and in every worker that has it.

        Returns False if `old` has been evicted, or if the larger `new` would exceed a limit on bytes.
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
        self._built[old.digest] = done  # keeps its place in the order of use
        for (_, digest), adopted in self._adopted.items():
            if digest == old.digest:
                renewal = loop.create_task(self._renew(adopted, new))
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewals.discard)
        return True

    def stats(self) -> dict[str, int]:
        """Returns numbers of templates, warmed ones, builds and reuses, and the bytes of all templates."""
        kept = [task.result() for task in self._built.values() if _succeeded(task)]
        return {
            "kept": len(kept),
            "warm": sum(built.warmth > 0 for built in kept),
            "learned": sum(built.learned > 0 for built in kept),
            "bytes": sum(built.nbytes for built in kept),
            "builds": self._begun,
            "hits": self._found,
        }

    def forget(self, worker: WorkerProcess, number: int | None = None) -> None:
        """Drops the adoptions of a dead worker, or the one template that a worker has evicted."""
        for key, adopted in list(self._adopted.items()):
            task = adopted.number
            gone = number is None or (_succeeded(task) and task.result() == number)
            if key[0] == worker.generation and gone:
                del self._adopted[key]
        if number is None:
            self._known_vocabularies = {k for k in self._known_vocabularies if k[0] != worker.generation}

    def forget_vocabulary(self, vocabulary: RegisteredVocabulary) -> None:
        """Drops the templates of a vocabulary that was evicted."""
        self._forget(lambda built: built.vocabulary is vocabulary)
        self._known_vocabularies = {k for k in self._known_vocabularies if k[1] != vocabulary.id}

    def forget_module(self, module: str) -> None:
        """Drops the templates of a module that was deleted; builds under way check for that themselves."""
        self._forget(lambda built: built.info.id == module)

    def _forget(self, unwanted: Callable[[Built], bool]) -> None:
        done = {key: task.result() for key, task in self._built.items() if _succeeded(task)}
        gone = {key for key, built in done.items() if unwanted(built)}
        for key in gone:
            del self._built[key]
        self._adopted = {key: adopted for key, adopted in self._adopted.items() if key[1] not in gone}

    async def ensure_vocabulary(self, worker: WorkerProcess, vocabulary: RegisteredVocabulary) -> None:
        """Sends a worker the vocabulary if it does not have it yet."""
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
        # a memory file, since an argument may be larger than the socket's buffer
        argument = Descriptor(sealed_bytes("aici-argument", arg))
        async with self._turns(owner, len(arg)) as spent:
            builder = self._builder(owner)
            await self.ensure_vocabulary(builder, vocabulary)
            built, files = await self._have_built(builder, call, argument, spent)
        if not self._store.has(module):
            raise UnknownControllerError(f"module {module} has been removed")
        nbytes = built["nbytes"] + len(arg)
        call["built"] = built
        may_learn = is_one_person(owner) or DEFAULT_OWNER in await self._uploaders(module)
        return Built(digest, info, vocabulary, call, [argument, *files[:1]], nbytes, owner, may_learn)

    async def _uploaders(self, module: str) -> Collection[str]:
        claims = await self._store.apart(partial(self._store.ownership.claims, module))
        return claims.owners

    async def _have_built(
        self,
        builder: WorkerProcess,
        call: dict[str, Any],
        argument: Descriptor,
        spent: Callable[[float], None],
    ) -> tuple[Any, list[Descriptor]]:
        """Returns the builder's answer and files. When cancelled, waits until the builder has ended the work:
        until then the owner gets no other turn."""
        number = next(self._numbers)
        exchange = asyncio.get_running_loop().create_task(
            builder.exchange("build", {**call, "build": number}, fds=[argument.fd])
        )
        try:
            answer, files = await asyncio.shield(exchange)
        except asyncio.CancelledError:
            builder.notify("cancel", {"build": number})
            await asyncio.wait([exchange])
            raise
        finally:
            if exchange.done() and not exchange.cancelled() and exchange.exception() is None:
                spent(exchange.result()[0]["cpu_s"])
        if (error := answer.get("error")) is not None:
            raise error_from_wire(error)
        return answer["built"], files

    async def _adopt(self, worker: WorkerProcess, built: Built) -> int:
        await self.ensure_vocabulary(worker, built.vocabulary)
        number: int = await worker.call("adopt", built.call, fds=[file.fd for file in built.files])
        return number

    async def _renew(self, adopted: _Adopted, new: Built) -> None:
        """Sends a worker the warmer template. A worker that refuses it keeps the old one until eviction."""
        try:
            number = await asyncio.shield(adopted.number)
            call = {**new.call, "replaces": number}
            await adopted.worker.call("adopt", call, fds=[file.fd for file in new.files])
        except WorkerDiedError:
            pass
        except AiciError as error:
            problem = "%s refused a warmed template and keeps the old one: %s"
            about = fields(worker=adopted.worker.index, code=error.code)
            _log.error(problem, adopted.worker.name, error.code, extra=about)

    def _settle_built(self, digest: bytes, task: asyncio.Task[Built]) -> None:
        self._settle(digest, task)
        if self.on_built is not None and self._built.get(digest) is task and _succeeded(task):
            self.on_built(task.result())

    def _settle(self, digest: bytes, task: asyncio.Task[Built]) -> None:
        """Drops a failed build; after a successful one evicts templates beyond the limits."""
        if not _succeeded(task) and self._built.get(digest) is task:
            del self._built[digest]  # a refused argument is tried again at the next request
        done = {key: task.result() for key, task in self._built.items() if _succeeded(task)}
        if digest not in done:
            return
        settings = self._settings
        own = [key for key in done if done[key].owner == done[digest].owner]
        self._evict(own, done, len(own), settings.owner_snapshot_bytes)
        left = [key for key in done if key in self._built]
        self._evict(left, done, settings.max_templates, settings.snapshot_bytes)

    def _evict(self, keys: list[bytes], done: dict[bytes, Built], number: int, nbytes: int) -> None:
        """Evicts some of `keys` until `number` of `nbytes` at most are left; never the last."""
        while len(keys) > 1:
            if len(keys) > number:
                key = to_evict((key, done[key].owner, 1) for key in keys)
            elif sum(done[key].nbytes for key in keys) > nbytes:
                key = to_evict((key, done[key].owner, done[key].nbytes) for key in keys)
            else:
                break
            keys.remove(key)
            self.counters["templates_given_up"] += 1
            del self._built[key]
            for adopted in [adopted for adopted in self._adopted if adopted[1] == key]:
                del self._adopted[adopted]

    def _settle_adopted(self, key: tuple[int, bytes], adopted: _Adopted) -> None:
        """Drops an adoption that has failed, or whose template has been evicted meanwhile."""
        failed = not _succeeded(adopted.number) and self._adopted.get(key) is adopted
        if failed or key[1] not in self._built:
            self._adopted.pop(key, None)


def _succeeded(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _digest(module: str, arg: bytes, vocabulary: int, capabilities: list[list[int]], owner: str) -> bytes:
    head = repr((module, vocabulary, capabilities, owner)).encode()
    return hashlib.sha256(head + b"\0" + arg).digest()
