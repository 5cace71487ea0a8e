"""The store of modules and scripts by SHA-256, and of the compiled code of modules."""

from __future__ import annotations

import asyncio
import bisect
import builtins
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path

from aicirt.contract.errors import ModuleError, ProtocolError, RuntimeFailure
from aicirt.contract.modules import ControllerInfo, StoredScript, resolve_name
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.files import ModuleFiles, ScriptNote
from aicirt.modules.ownership import Ownership
from aicirt.settings import LIST_PAGE, LIST_PAGE_BYTES, MAX_DESCRIPTION, Limits
from aicirt.system.files import (
    cache_folder,
    is_private_file,
    let_read,
    move_whole,
    private_directory,
    read_regular,
    write_whole,
)
from aicirt.system.processes import Start, User
from aicirt.system.shortage import describe, is_shortage
from aicirt.system.threads import Result, in_thread

# what compiled code depends on is here, so that the supervisor needs no wasmtime, which takes 0.1 s to import
#: summary of the settings of `aicirt.wasm.engine` that change compiled code or accepted modules
CONFIG_VERSION = "epoch, cow, no memory64/threads/gc/components/multi-memory, deterministic simd; 1"
#: changes whenever `aicirt.wasm.module` rewrites or refuses any module differently
REWRITER_VERSION = 9
#: the limits that `aicirt.wasm.module.check` enforces
CHECKED = (
    "memory_bytes",
    "table_elements",
    "mutable_globals",
    "exports",
    "export_bytes",
    "functions",
    "items",
    "tables",
    "module_bytes",
)

#: what to do if the default directory cannot be written; models are beside it
MOVE = "set XDG_CACHE_HOME, or AICI_STORE for modules alone, to a folder that you can write"


def default_directory() -> Path:
    """Returns ``$AICI_STORE``, or ``$XDG_CACHE_HOME/aici/store``, or ``~/.cache/aici/store``.

    The store has a folder of its own because the folder must be private, unlike other cached files.
    """
    if folder := os.environ.get("AICI_STORE"):
        return Path(folder)
    return cache_folder() / "store"


#: called with an owner and the bytes held while waiting; returns a context manager that waits for the owner's
#: turn and yields a function to report the seconds of CPU time that the work took
FairTurns = Callable[[str, int], AbstractAsyncContextManager[Callable[[float], None]]]


@asynccontextmanager
async def _at_once(_owner: str, _nbytes: int) -> AsyncIterator[Callable[[float], None]]:
    yield lambda _seconds: None


#: number of threads that `apart` uses at a time
_THREADS = 4


class ModuleStore:
    """Uploaded modules, in ``modules/``, which may be shared, and code, in ``compiled/``, which is private.

    A compiled artifact is specific to one wasmtime version, configuration, rewriter and CPU, and to the
    limits that its module was checked against. Its name identifies them, and a description next to it has
    its SHA-256. A module without a matching artifact is checked and compiled again.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        modules: Path | None = None,
        limits: Limits | None = None,
        cost: CompileLimits | None = None,
        user: User | None = None,
    ) -> None:
        """Opens the store, and creates its directories.

        `modules` is the folder of uploads if they are shared with other machines or users. `user` is the user
        that `add_async` and `get_async` compile as, and that runs the compiled code, if not the current user.
        Raises `RuntimeFailure` if the directory is not private or cannot be created.
        """
        root = directory or default_directory()
        folder = modules or root / "modules"
        self._limits = limits or Limits()
        #: the uploaded modules and scripts
        self.files = ModuleFiles(folder, self._limits.module_bytes)
        try:
            # also checks the directories above, which no other user may replace
            #: the folder of compiled modules
            self.code = private_directory(root / "compiled")
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cure = "" if directory else f"; {MOVE}"
            raise RuntimeFailure(f"modules cannot be stored in {root}: {describe(error)}{cure}") from error
        self._user = user
        if user is not None:
            let_read(self.code, user.gid)
        self._cost = cost or CompileLimits()
        self._key = f"{REWRITER_VERSION}-{code_key()}{_key(self._limits)}"
        self.ownership = Ownership(root, self.files)
        #: schedules the compilations of `add_async` and `get_async`
        self.turns: FairTurns = _at_once
        #: starts the compilers of `add_async` and `get_async`; None: each in a new interpreter
        self.start: Start | None = None
        self._threads = asyncio.Semaphore(_THREADS)

    # -- adding ------------------------------------------------------------------------------

    def add(self, wasm: bytes, owner: str = "") -> ControllerInfo:
        """Stores and compiles a module, and adds a claim for `owner`, if any. Fast if the module is known.

        Raises `ModuleError` or `CompileLimitError`; a refused module is not stored. Raises `RuntimeFailure`
        if there is no room, if no compiler process can start, or if the folder is not writable.
        """
        module_id = self._check_size(wasm)
        known = self._known(module_id, owner)
        if known:
            return known
        with self._keeping() as (pending, artifact):
            pending.write_bytes(wasm)
            info = compile_in_child(pending, artifact, self._limits, self._cost)
            return self._finish(info, pending, artifact, owner)

    async def add_async(self, wasm: bytes, owner: str = "") -> ControllerInfo:
        """Does the same as `add`, for asyncio, after waiting for the owner's turn. Cancellation ends it.

        Raises also the errors of `turns`.
        """
        return await self._add_async(wasm, owner, owner)

    async def _add_async(self, wasm: bytes, owner: str, claimant: str) -> ControllerInfo:
        """Waits for a turn of `owner`, compiles the module, and adds a claim for `claimant`, if any."""
        module_id = await self.apart(partial(self._check_size, wasm))
        look = partial(self._known, module_id, claimant)
        if known := await self.apart(look):
            return known
        async with self.turns(owner, len(wasm)) as spent:
            if known := await self.apart(look):  # another caller has added it meanwhile
                return known
            with self._keeping() as (pending, artifact):
                await self.apart(partial(pending.write_bytes, wasm))
                info = await compile_in_child_async(
                    pending, artifact, self._limits, self._cost, spent, self._user, self.start
                )
                return await self.apart(partial(self._finish, info, pending, artifact, claimant))

    async def apart(self, call: Callable[[], Result]) -> Result:
        """Returns what `call` does, which reads or writes files, in a thread: see `in_thread`."""
        async with self._threads:
            return await in_thread(call)

    def add_script(self, script: StoredScript, owner: str = "") -> ControllerInfo:
        """Stores a script for `owner`, as `add` stores a module; its interpreter must be stored already.

        Raises `ModuleError` if the script is invalid or its interpreter is not stored, and `RuntimeFailure`
        if there is no room.
        """
        script.check()
        with self._writing("stored"), self.ownership.claiming(script.id, owner):
            self._require_interpreter(script)
            self.files.keep_script(script)
            note = self.files.note(script.id)
        assert note is not None
        return self._named(self._of_script(script.id, note))

    def knows(self, wasm: bytes) -> bool:
        """Returns whether this module has been added."""
        return self.has(hashlib.sha256(wasm).hexdigest())

    def _check_size(self, wasm: bytes) -> str:
        if len(wasm) > self._limits.module_bytes:
            reason = f"the file has {len(wasm)} bytes, more than the limit of {self._limits.module_bytes}"
            raise ModuleError(reason, reasons=[reason])
        return hashlib.sha256(wasm).hexdigest()

    @contextmanager
    def _keeping(self) -> Iterator[tuple[Path, Path]]:
        """Yields paths for a private copy of a module and for its artifact; removes both files afterwards."""
        pending = None
        try:
            with self._writing("compiled and stored"):
                fd, name = tempfile.mkstemp(prefix=".new-", suffix=".wasm", dir=self.code)
                os.close(fd)
                pending = Path(name)
                yield pending, pending.with_suffix(".compiled")
        finally:
            if pending is not None:
                self._discard(pending, pending.with_suffix(".compiled"))

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Converts errors of writing files: raises RuntimeFailure if the folders do not allow it now."""
        try:
            yield
        except OSError as error:
            changed = isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError))
            if not is_shortage(error) and not changed:
                raise
            problem = f"modules cannot be {what} in {self.code.parent}: {describe(error)}"
            cure = ": make its folders as they were, with the right to write there" if changed else ""
            raise RuntimeFailure(problem + cure) from error

    def _finish(self, info: ControllerInfo, pending: Path, artifact: Path, claimant: str) -> ControllerInfo:
        new = not self.has(info.id)
        with self.ownership.claiming(info.id, claimant):
            try:
                self.files.keep_wasm(info.id, pending.read_bytes())
                move_whole(artifact, self.artifact_path(info.id))
                write_whole(self._info_path(info.id), json.dumps(info.to_wire()).encode())
            except OSError:  # without the last file the others would never be found nor removed
                if new:
                    self.files.discard(info.id)
                    self._discard(self.artifact_path(info.id))
                raise
        return self._ready(info)

    @staticmethod
    def _discard(*paths: Path) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    # -- finding -----------------------------------------------------------------------------

    def get(self, name: str) -> ControllerInfo:
        """Returns a module by id or tag, after compiling it if `artifact_path` has no valid artifact.

        Raises `UnknownControllerError`, and the errors of `add`.
        """
        module_id = self.resolve(name)
        return self._known(module_id) or self.add(self.files.wasm(module_id))

    async def get_async(self, name: str, owner: str = "") -> ControllerInfo:
        """Does the same as `get`, for asyncio; a compilation takes a turn of `owner`."""

        def look() -> tuple[ControllerInfo | None, bytes]:
            module_id = self.resolve(name)
            known = self._known(module_id)
            return known, b"" if known else self.files.wasm(module_id)

        known, wasm = await self.apart(look)
        return known or await self._add_async(wasm, owner, "")

    async def describe_async(self, name: str, owner: str = "") -> ControllerInfo:
        """Returns a module or script by id or tag, without checking its artifact.

        Compiles the module in a turn of `owner` if it has no description here. Raises the errors of
        `get_async`.
        """

        def look() -> ControllerInfo | None:
            module_id = self.resolve(name)
            if (note := self.files.note(module_id)) is not None:
                return self._named(self._of_script(module_id, note))
            info = self._described(module_id)
            return None if info is None or not self.has(module_id) else self._named(info)

        return await self.apart(look) or await self.get_async(name, owner)

    def resolve(self, name: str) -> str:
        """Returns the id for an id, the beginning of one, or a tag. Raises `UnknownControllerError`."""
        return resolve_name(name, self.files.ids, self.ownership.tagged)

    def find_call(self, name: str, arg: bytes) -> tuple[str, bytes]:
        """Returns the module that runs for a name with an argument, and the argument that it receives.

        For a script these are the interpreter, and the script with the argument. Raises
        `UnknownControllerError`, `ModuleError` for a script whose interpreter has been removed, and
        `ArgumentError` for an argument that scripts cannot receive.
        """
        module_id = self.resolve(name)
        script = self.files.script(module_id)
        if script is None:
            return module_id, arg
        self._require_interpreter(script)
        return script.interpreter, script.argument(arg)

    def wasm(self, name: str) -> bytes:
        """Returns a module's file, by id or tag; raises the errors of `resolve` and `ModuleFiles.wasm`."""
        return self.files.wasm(self.resolve(name))

    def has(self, module_id: str) -> bool:
        """Returns whether a module or script is stored."""
        return self.files.has(module_id)

    def list(self) -> list[ControllerInfo]:
        """Returns all stored modules that are compiled for this runtime, and all scripts, sorted by id."""
        return list(self._listed("", None))

    def page(
        self, after: str = "", limit: int = LIST_PAGE, found_by: str | None = None
    ) -> builtins.list[ControllerInfo]:
        """Returns the next entries of `list`, those after the id `after`; an empty list at the end.

        Returns at most `limit` entries, and stops when they take `LIST_PAGE_BYTES`. With `found_by`, returns
        only those that this owner has uploaded or that have a tag.
        """
        found: builtins.list[ControllerInfo] = []
        nbytes = 0
        for info in self._listed(after, found_by):
            found.append(info)
            nbytes += info.nbytes
            if len(found) >= limit or nbytes >= LIST_PAGE_BYTES:
                break
        return found

    def count(self) -> int:
        """Returns the number of stored modules and scripts, including those not compiled for this runtime."""
        return len(self.files.ids())

    def _listed(self, after: str, found_by: str | None) -> Iterator[ControllerInfo]:
        ids = self.files.ids()
        for module_id in ids[bisect.bisect_right(ids, after) :]:
            if found_by is not None and not self.ownership.finds(found_by, module_id):
                continue
            try:
                note = self.files.note(module_id)
            except (ModuleError, RuntimeFailure):  # damaged, or not readable now
                continue
            info = self._described(module_id) if note is None else self._of_script(module_id, note)
            if info is not None:
                yield self._named(info)

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> builtins.list[str]:
        """Removes a module, by id or tag, as `Ownership.remove` does. Raises also UnknownControllerError."""
        module_id = self.resolve(name)
        return self._gone(partial(self.ownership.remove, module_id, owner, force=force))

    def tag(self, name: str, module: str, owner: str = "", limit: int | None = None) -> builtins.list[str]:
        """Tags a module, by id or tag, as `Ownership.tag` does. Raises also UnknownControllerError."""
        module_id = self.resolve(module)
        return self._gone(partial(self.ownership.tag, name, module_id, owner, limit))

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> builtins.list[str]:
        """Removes a tag, as `Ownership.untag` does."""
        return self._gone(partial(self.ownership.untag, name, owner, force=force))

    def _gone(self, change: Callable[[], builtins.list[str]]) -> builtins.list[str]:
        """Makes a change, and removes the code of the modules that it has removed; returns them."""
        with self._writing("removed"):
            modules = change()
            for module_id in modules:
                self._discard(*self.code.glob(f"{module_id}-*"))
        return modules

    # -- scripts -----------------------------------------------------------------------------

    def _require_interpreter(self, script: StoredScript) -> None:
        if not self.has(script.interpreter) or self.files.is_script(script.interpreter):
            # not UnknownControllerError: the name is known, and is not that of a bundled controller
            raise ModuleError(
                f"the script {script.name!r} needs its interpreter, module {script.interpreter}, which is "
                "not stored here: upload the script again"
            )

    def _of_script(self, module_id: str, note: ScriptNote) -> ControllerInfo:
        """Describes a script by its interpreter's description, if that is known here."""
        interpreter = self._described(note.interpreter) or ControllerInfo(module_id, 0)
        return replace(
            interpreter,
            id=module_id,
            size=note.size,
            compiled_size=0,
            compiled_sha256="",
            language=note.language,
            script=note.name,
            interpreter=note.interpreter,
        )

    # -- files of compiled modules --------------------------------------------------------------

    def artifact_path(self, module_id: str) -> Path:
        """Returns the file with the compiled code of a module that `add` or `get` returned."""
        return self.code / f"{module_id}-{self._key}.compiled"

    def _info_path(self, module_id: str) -> Path:
        return self.code / f"{module_id}-{self._key}.json"

    def _described(self, module_id: str) -> ControllerInfo | None:
        try:
            data = read_regular(self._info_path(module_id), MAX_DESCRIPTION + 1, ours=True)
            if data is None or len(data) > MAX_DESCRIPTION:
                return None
            info = ControllerInfo.from_wire(json.loads(data))
        except (OSError, ValueError, ProtocolError):
            return None
        return info if info.id == module_id else None

    def _known(self, module_id: str, claimant: str = "") -> ControllerInfo | None:
        """Returns the description of a module whose artifact exists, is ours and is intact, else None.

        Adds a claim for `claimant`, if any.
        """
        info, artifact = self._described(module_id), self.artifact_path(module_id)
        if info is None or not is_private_file(artifact) or not self.has(module_id):
            return None
        try:
            code = artifact.read_bytes()
        except FileNotFoundError:  # removed meanwhile
            return None
        if hashlib.sha256(code).hexdigest() != info.compiled_sha256:
            return None
        if claimant and not self.ownership.claim(module_id, claimant):  # removed meanwhile
            return None
        return self._ready(info)

    def _ready(self, info: ControllerInfo) -> ControllerInfo:
        """Lets the workers' user read a module's code; returns the description with tags and owners."""
        if self._user is not None:
            let_read(self.artifact_path(info.id), self._user.gid)
        return self._named(info)

    def _named(self, info: ControllerInfo) -> ControllerInfo:
        """Adds tags and claims, which are stored separately, to a description."""
        claim = self.ownership.claims(info.id)
        info.tags = self.ownership.tags_of(info.id)
        info.owners, info.created = sorted(claim.owners), claim.created
        return info


@lru_cache
def code_key() -> str:
    """Returns the key of everything that compiled code depends on besides the module."""
    parts = [version("wasmtime"), CONFIG_VERSION, platform.machine(), _cpu_features()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _cpu_features() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return ""


def _key(limits: Limits) -> str:
    """Returns a suffix for artifacts of modules that were checked against non-default limits, else ""."""
    checked, usual = ([getattr(some, name) for name in CHECKED] for some in (limits, Limits()))
    return "" if checked == usual else "-" + hashlib.sha256(repr(checked).encode()).hexdigest()[:8]
