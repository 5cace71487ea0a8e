"""Modules and scripts by the SHA-256 of their content, and the compiled code of modules."""

from __future__ import annotations

import bisect
import builtins
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from aicirt.contract.errors import ModuleError, ProtocolError, RuntimeFailure
from aicirt.contract.modules import ModuleInfo, StoredScript, resolve_name
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.files import ModuleFiles, ScriptNote
from aicirt.modules.ownership import Claim, Claims, Ownership, Tags
from aicirt.settings import LIST_PAGE, LIST_PAGE_BYTES, MOST_DESCRIPTION, Limits
from aicirt.system.files import (
    is_private_file,
    let_read,
    move_whole,
    private_directory,
    read_regular,
    write_whole,
)
from aicirt.system.shortage import describe, is_shortage
from aicirt.system.user import User
from aicirt.wasm.engine import code_key
from aicirt.wasm.module.check import CHECKED
from aicirt.wasm.module.rewrite import REWRITER_VERSION


def default_directory() -> Path:
    """``$AICI_STORE``, or ``$XDG_CACHE_HOME/aici/store``, or in ``~/.cache``: a folder of its
    own, which must be private, as what lies beside it need not be.
    """
    if folder := os.environ.get("AICI_STORE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "store"


#: around work for an owner, which holds so many bytes until its turn comes: waits for the turn, and is told
#: the seconds of CPU time that the work took
FairTurns = Callable[[str, int], AbstractAsyncContextManager[Callable[[float], None]]]


@asynccontextmanager
async def _at_once(_owner: str, _nbytes: int) -> AsyncIterator[Callable[[float], None]]:
    yield lambda _seconds: None


def _nobody_told(_module: str) -> None:
    pass


class ModuleStore:
    """``modules/``, what was uploaded, which may be shared, and ``compiled/``, which must be private.

    A compiled artifact belongs to one wasmtime version, configuration, rewriter and CPU, and to the
    limits that its module was checked against; its name says which, and a description beside it has
    its SHA-256. Whatever does not fit is checked and compiled anew.
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
        """`modules`: where the .wasm files are, if they are shared with other machines or users. `user`: who
        compiles, with `add_async` and `get_async`, and runs what was compiled, if not the caller.

        Raises `RuntimeFailure` if the directory is not private, or cannot be made.
        """
        root = directory or default_directory()
        folder = modules or root / "modules"
        self._limits = limits or Limits()
        #: what was uploaded
        self.files = ModuleFiles(folder, self._limits.module_bytes)
        try:
            # also looks at the directories above: nobody else may put another in their place
            #: the folder of compiled modules
            self.code = private_directory(root / "compiled")
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeFailure(f"modules cannot be kept in {root}: {describe(error)}") from error
        self._user = user
        if user is not None:
            let_read(self.code, user.gid)
        self._cost = cost or CompileLimits()
        self._key = f"{REWRITER_VERSION}-{code_key()}{_key(self._limits)}"
        self.tags = Tags(root)
        self.claims = Claims(root)
        self.ownership = Ownership(self.files, self.tags, self.claims, self._gone)
        #: who may compile when, with `add_async` and `get_async`
        self.turns: FairTurns = _at_once
        #: called with the id of what is stored no more
        self.on_gone: Callable[[str], None] = _nobody_told

    # -- adding ------------------------------------------------------------------------------

    def add(self, wasm: bytes, owner: str = "") -> ModuleInfo:
        """Store and compile a module for `owner`, who has a claim to it from now on; quick if it is known.

        Without an owner nobody has one. Raises `ModuleError` or `CompileLimitError`; a refused module is not
        stored. Raises `RuntimeFailure` if there is no room, no process to compile it, or the folder may not
        be written.
        """
        module_id = self._check_size(wasm)
        known = self._known(module_id, owner)
        if known:
            return known
        with self._keeping() as (pending, artifact):
            pending.write_bytes(wasm)
            info = compile_in_child(pending, artifact, self._limits, self._cost)
            return self._finish(info, pending, artifact, owner)

    async def add_async(self, wasm: bytes, owner: str = "") -> ModuleInfo:
        """`add` for asyncio; cancelling it ends the compilation, which waits for the owner's turn.

        Raises also what `turns` raises.
        """
        return await self._add_async(wasm, owner, owner)

    async def _add_async(self, wasm: bytes, owner: str, claimant: str) -> ModuleInfo:
        """`owner` is who waits for a turn, `claimant` who has a claim afterwards, if anybody."""
        module_id = self._check_size(wasm)
        known = self._known(module_id, claimant)
        if known:
            return known
        async with self.turns(owner, len(wasm)) as spent:
            if known := self._known(module_id, claimant):  # somebody else has added it meanwhile
                return known
            with self._keeping() as (pending, artifact):
                pending.write_bytes(wasm)
                info = await compile_in_child_async(
                    pending, artifact, self._limits, self._cost, spent, self._user
                )
                return self._finish(info, pending, artifact, claimant)

    def add_script(self, script: StoredScript, owner: str = "") -> ModuleInfo:
        """Store a script for `owner`, as `add` does with a module; its interpreter must be stored already.

        Raises `ModuleError` for what is no script, or without its interpreter, and `RuntimeFailure` if there
        is no room.
        """
        script.check()
        with self._writing("kept"), self.claims.changing() as claims:
            self._require_interpreter(script)
            self.files.keep_script(script)
            if owner:
                claims.add(script.id, owner)
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
        """Names for a private copy of a module and for its artifact, both gone afterwards."""
        pending = None
        try:
            with self._writing("compiled and kept"):
                fd, name = tempfile.mkstemp(prefix=".new-", suffix=".wasm", dir=self.code)
                os.close(fd)
                pending = Path(name)
                yield pending, pending.with_suffix(".compiled")
        finally:
            if pending is not None:
                self._discard(pending, pending.with_suffix(".compiled"))

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Around writing files. Raises RuntimeFailure where there is no room."""
        try:
            yield
        except OSError as error:
            if not is_shortage(error) and not isinstance(error, IsADirectoryError):
                raise
            where = self.code.parent
            raise RuntimeFailure(f"no module can be {what} in {where}: {describe(error)}") from error

    def _finish(self, info: ModuleInfo, pending: Path, artifact: Path, claimant: str) -> ModuleInfo:
        new = not self.has(info.id)
        with self.ownership.claiming(info.id, claimant):
            try:
                self.files.keep_wasm(info.id, pending.read_bytes())
                move_whole(artifact, self.artifact_path(info.id))
                write_whole(self._info_path(info.id), json.dumps(info.to_wire()).encode())
            except OSError:  # without the last file nobody finds the others, which would stay for ever
                if new:
                    self.files.discard(info.id)
                    self._discard(self.artifact_path(info.id))
                raise
        return self._ready(info)

    def _gone(self, module_id: str) -> None:
        self._discard(*self.code.glob(f"{module_id}-*"))
        self.on_gone(module_id)

    @staticmethod
    def _discard(*paths: Path) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    # -- finding -----------------------------------------------------------------------------

    def get(self, name: str) -> ModuleInfo:
        """A module by id or tag, with an artifact ready in `artifact_path`; compiled if it must be.

        Raises `UnknownModuleError`, or as `add`.
        """
        module_id = self.resolve(name)
        return self._known(module_id) or self.add(self.files.wasm(module_id))

    async def get_async(self, name: str, owner: str = "") -> ModuleInfo:
        """`get` for asyncio, compiled for `owner` if it must be."""
        module_id = self.resolve(name)
        return self._known(module_id) or await self._add_async(self.files.wasm(module_id), owner, "")

    async def describe_async(self, name: str, owner: str = "") -> ModuleInfo:
        """A module by id or tag, whose artifact is not looked at; compiled for `owner` if it has none here.

        Raises as `get_async`.
        """
        module_id = self.resolve(name)
        if (note := self.files.note(module_id)) is not None:
            return self._named(self._of_script(module_id, note))
        info = self._described(module_id)
        if info is None or not self.has(module_id):
            return await self.get_async(module_id, owner)
        return self._named(info)

    def resolve(self, name: str) -> str:
        """Module id of an id, of the beginning of one, or of a tag. Raises `UnknownModuleError`."""
        return resolve_name(name, self.files.ids, self.tags.modules)

    def find_call(self, name: str, arg: bytes) -> tuple[str, bytes]:
        """Returns the module that runs for a name with an argument, and the argument that it receives.

        For a script these are the interpreter, and the script with the argument. Raises `UnknownModuleError`,
        `ModuleError` for a script whose interpreter has gone, and `ArgumentError` for an argument that no
        script can get.
        """
        module_id = self.resolve(name)
        script = self.files.script(module_id)
        if script is None:
            return module_id, arg
        self._require_interpreter(script)
        return script.interpreter, script.argument(arg)

    def wasm(self, name: str) -> bytes:
        """A module itself; raises as `ModuleFiles.wasm`."""
        return self.files.wasm(self.resolve(name))

    def has(self, module_id: str) -> bool:
        """Returns whether a module or script is stored."""
        return self.files.has(module_id)

    def list(self) -> list[ModuleInfo]:
        """All stored modules that are compiled for this runtime, and all scripts, by id."""
        return list(self._listed("", None))

    def page(
        self, after: str = "", limit: int = LIST_PAGE, found_by: str | None = None
    ) -> builtins.list[ModuleInfo]:
        """The next ones of `list`, by id, from behind the id `after`; none at its end.

        At most `limit`, and not many more than `LIST_PAGE_BYTES`. `found_by`: only those that this owner has
        uploaded, or that have a tag.
        """
        found: builtins.list[ModuleInfo] = []
        nbytes = 0
        for info in self._listed(after, found_by):
            found.append(info)
            nbytes += info.nbytes
            if len(found) >= limit or nbytes >= LIST_PAGE_BYTES:
                break
        return found

    def count(self) -> int:
        """How many modules and scripts are stored, whatever they were compiled for."""
        return len(self.files.ids())

    def _listed(self, after: str, found_by: str | None) -> Iterator[ModuleInfo]:
        ids, claims = self.files.ids(), self.claims.read()
        tags: dict[str, builtins.list[str]] = {}
        for tag in self.tags.list():
            tags.setdefault(tag.module, []).append(tag.name)
        for module_id in ids[bisect.bisect_right(ids, after) :]:
            claim = claims.get(module_id, Claim())
            if found_by is not None and found_by not in claim.owners and module_id not in tags:
                continue
            try:
                note = self.files.note(module_id)
            except (ModuleError, RuntimeFailure):  # it is damaged, or cannot be read now
                continue
            info = self._described(module_id) if note is None else self._of_script(module_id, note)
            if info is not None:
                yield _with_names(info, tags.get(module_id, []), claim)

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> bool:
        """Removes a module, by id or tag, as `Ownership.remove` does. Raises also UnknownModuleError."""
        return self.ownership.remove(self.resolve(name), owner, force=force)

    def tag(self, name: str, module: str, owner: str = "") -> str | None:
        """Tags a module, by id or tag, as `Ownership.tag` does. Raises also UnknownModuleError."""
        return self.ownership.tag(name, self.resolve(module), owner)

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> str | None:
        """Removes a tag, as `Ownership.untag` does."""
        return self.ownership.untag(name, owner, force=force)

    # -- scripts -----------------------------------------------------------------------------

    def _require_interpreter(self, script: StoredScript) -> None:
        if not self.has(script.interpreter) or self.files.is_script(script.interpreter):
            # no UnknownModuleError: the name is known, and stands for no bundled controller either
            raise ModuleError(
                f"the script {script.name!r} needs its interpreter, module {script.interpreter}, which is "
                "not stored here (any more): upload the script again"
            )

    def _of_script(self, module_id: str, note: ScriptNote) -> ModuleInfo:
        """Describes a script as its interpreter, as far as that is known here."""
        interpreter = self._described(note.interpreter) or ModuleInfo(module_id, 0)
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

    # -- files of what was compiled -------------------------------------------------------------

    def artifact_path(self, module_id: str) -> Path:
        """Returns the file with the compiled code of a module that `add` or `get` returned."""
        return self.code / f"{module_id}-{self._key}.compiled"

    def _info_path(self, module_id: str) -> Path:
        return self.code / f"{module_id}-{self._key}.json"

    def _described(self, module_id: str) -> ModuleInfo | None:
        try:
            data = read_regular(self._info_path(module_id), MOST_DESCRIPTION + 1, ours=True)
            if data is None or len(data) > MOST_DESCRIPTION:
                return None
            info = ModuleInfo.from_wire(json.loads(data))
        except (OSError, ValueError, ProtocolError):
            return None
        return info if info.id == module_id else None

    def _known(self, module_id: str, claimant: str = "") -> ModuleInfo | None:
        """Description of a module whose artifact is there, ours and whole; the claimant has a claim then."""
        info, artifact = self._described(module_id), self.artifact_path(module_id)
        if info is None or not is_private_file(artifact) or not self.has(module_id):
            return None
        try:
            code = artifact.read_bytes()
        except FileNotFoundError:  # it has been removed since
            return None
        if hashlib.sha256(code).hexdigest() != info.compiled_sha256:
            return None
        if claimant:
            with self.claims.changing() as claims:
                if not self.has(module_id):  # it has been removed meanwhile
                    return None
                claims.add(module_id, claimant)
        return self._ready(info)

    def _ready(self, info: ModuleInfo) -> ModuleInfo:
        """Lets the workers' user read a module's code; returns the module's description with its names."""
        if self._user is not None:
            let_read(self.artifact_path(info.id), self._user.gid)
        return self._named(info)

    def _named(self, info: ModuleInfo) -> ModuleInfo:
        tags = [tag.name for tag in self.tags.list() if tag.module == info.id]
        return _with_names(info, tags, self.claims.read().get(info.id, Claim()))


def _with_names(info: ModuleInfo, tags: list[str], claim: Claim) -> ModuleInfo:
    """The description, with what is kept apart from it."""
    info.tags = tags
    info.owners, info.created = sorted(claim.owners), claim.created
    return info


def _key(limits: Limits) -> str:
    """Modules checked against other limits than the usual ones have artifacts of their own."""
    checked, usual = ([getattr(some, name) for name in CHECKED] for some in (limits, Limits()))
    return "" if checked == usual else "-" + hashlib.sha256(repr(checked).encode()).hexdigest()[:8]
