"""Modules by the SHA-256 of their content, and their compiled code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from aicirt.errors import ModuleError, ProtocolError, RuntimeFailure, UnknownModuleError
from aicirt.modules.claims import Claim, Claims, ClaimsChange
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.modules.info import ModuleInfo
from aicirt.modules.private import is_private_file, let_read, move_whole, private_directory, write_whole
from aicirt.modules.tags import Tag, Tags, is_module_id
from aicirt.shortage import describe, is_shortage
from aicirt.user import User
from aicirt.wasm.check import CHECKED
from aicirt.wasm.engine import code_key
from aicirt.wasm.limits import Limits
from aicirt.wasm.rewrite import REWRITER_VERSION

#: so much of an id finds a module: nobody comes upon those of others by trying
_BEGINNING = re.compile("[0-9a-f]{12,63}")


def default_directory() -> Path:
    """``$AICI_STORE``, or ``$XDG_CACHE_HOME/aici/store``, or in ``~/.cache``: a folder of its
    own, which must be private, as what lies beside it need not be.
    """
    if folder := os.environ.get("AICI_STORE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "store"


#: around a compilation for an owner: waits for its turn, and is told the seconds of CPU time that it took
Turns = Callable[[str], AbstractAsyncContextManager[Callable[[float], None]]]


@asynccontextmanager
async def _at_once(_owner: str) -> AsyncIterator[Callable[[float], None]]:
    yield lambda _seconds: None


class ModuleStore:
    """``modules/<id>.wasm``, which may be shared, and ``compiled/``, which must be private.

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
        self._modules = modules or root / "modules"
        try:
            # also looks at the directories above: nobody else may put another in their place
            #: the folder of compiled modules
            self.code = private_directory(root / "compiled")
            self._modules.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeFailure(f"modules cannot be kept in {root}: {describe(error)}") from error
        self._user = user
        if user is not None:
            let_read(self.code, user.gid)
        self._limits = limits or Limits()
        self._cost = cost or CompileLimits()
        self._key = f"{REWRITER_VERSION}-{code_key()}{_key(self._limits)}"
        self.tags = Tags(root)
        self.claims = Claims(root)
        #: who may compile when, with `add_async` and `get_async`
        self.turns: Turns = _at_once

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
        async with self.turns(owner) as spent:
            if known := self._known(module_id, claimant):  # somebody else has added it meanwhile
                return known
            with self._keeping() as (pending, artifact):
                pending.write_bytes(wasm)
                info = await compile_in_child_async(
                    pending, artifact, self._limits, self._cost, spent, self._user
                )
                return self._finish(info, pending, artifact, claimant)

    def knows(self, wasm: bytes) -> bool:
        """Whether this module has been added."""
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
            fd, name = tempfile.mkstemp(prefix=".new-", suffix=".wasm", dir=self.code)
            os.close(fd)
            pending = Path(name)
            yield pending, pending.with_suffix(".compiled")
        except OSError as error:
            if not is_shortage(error):
                raise
            where = self.code.parent
            raise RuntimeFailure(
                f"no module can be compiled and kept in {where}: {describe(error)}"
            ) from error
        finally:
            if pending is not None:
                self._discard(pending, pending.with_suffix(".compiled"))

    def _finish(self, info: ModuleInfo, pending: Path, artifact: Path, claimant: str) -> ModuleInfo:
        wasm = self._wasm_path(info.id)
        new = not wasm.exists()
        with self._claiming(info.id, claimant):
            try:
                write_whole(wasm, pending.read_bytes(), 0o644)
                move_whole(artifact, self.artifact_path(info.id))
                write_whole(self._info_path(info.id), json.dumps(info.to_wire()).encode())
            except OSError:  # without the last file nobody finds the others, which would stay for ever
                if new:
                    self._discard(wasm, self.artifact_path(info.id))
                raise
        return self._ready(info)

    @contextmanager
    def _claiming(self, module_id: str, claimant: str) -> Iterator[None]:
        """Around making sure that a module is there: nobody removes it before the claim is written."""
        if not claimant:
            yield
            return
        with self.claims.changing() as claims:
            yield
            claims.add(module_id, claimant)

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
        return self._known(module_id) or self.add(self.wasm(module_id))

    async def get_async(self, name: str, owner: str = "") -> ModuleInfo:
        """`get` for asyncio, compiled for `owner` if it must be."""
        module_id = self.resolve(name)
        return self._known(module_id) or await self._add_async(self.wasm(module_id), owner, "")

    async def describe_async(self, name: str, owner: str = "") -> ModuleInfo:
        """A module by id or tag, whose artifact is not looked at; compiled for `owner` if it has none here.

        Raises as `get_async`.
        """
        module_id = self.resolve(name)
        info = self._described(module_id)
        if info is None or not self.has(module_id):
            return await self.get_async(module_id, owner)
        return self._named(info)

    def resolve(self, name: str) -> str:
        """Module id of a tag, of the beginning of an id, or of an id itself. Raises `UnknownModuleError`."""
        try:
            return self.tags.resolve(name)
        except UnknownModuleError:
            if not _BEGINNING.fullmatch(name):
                raise
            found = [path.stem for path in self._modules.glob(f"{name}*.wasm") if is_module_id(path.stem)]
            if len(found) > 1:
                raise UnknownModuleError(
                    f"{len(found)} modules begin with {name!r}: say more of the id"
                ) from None
            if not found:
                raise
            return found[0]

    def has(self, module_id: str) -> bool:
        """Whether a module is stored."""
        return self._wasm_path(module_id).exists()

    def wasm(self, name: str) -> bytes:
        """The module itself, checked against its id. Raises `UnknownModuleError`, or RuntimeFailure if it
        cannot be read now."""
        module_id = self.resolve(name)
        try:
            data = self._wasm_path(module_id).read_bytes()
        except OSError as error:
            if is_shortage(error):
                raise RuntimeFailure(f"module {module_id} cannot be read: {describe(error)}") from error
            raise UnknownModuleError(f"no module {module_id}") from None
        if hashlib.sha256(data).hexdigest() != module_id:
            raise UnknownModuleError(f"the stored module {module_id} is damaged: upload it again")
        return data

    def list(self) -> list[ModuleInfo]:
        """All stored modules that are compiled for this runtime, by id."""
        ids = sorted(path.stem for path in self._modules.glob("*.wasm") if is_module_id(path.stem))
        tags, claims = self.tags.list(), self.claims.read()
        found = (self._described(module_id) for module_id in ids)
        return [_with_names(info, tags, claims) for info in found if info]

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> bool:
        """Drop an owner's claim to a module, whose tags of it must be removed before.

        Where nobody else has a claim, and no tag of anybody else names it, the module goes, with what was
        compiled of it: then the answer is true. `force`: it goes whoever has claims to it, and its tags too.
        Raises `UnknownModuleError`, `NotOwnerError` if the owner has no claim to it, `ModuleError` if the
        owner has tags on it.
        """
        module_id = self.resolve(name)
        with self.claims.changing() as claims:
            if not self.has(module_id):
                raise UnknownModuleError(f"no module {module_id}")
            tags = [tag for tag in self.tags.list() if tag.module == module_id]
            if force:
                for tag in tags:
                    self.tags.remove(tag.name, force=True)
            else:
                claims.require(module_id, owner)
                if own := [tag.name for tag in tags if tag.owner == owner]:
                    raise ModuleError(
                        f"module {module_id} still has the tags {', '.join(own)}: remove them first"
                    )
                claims.drop(module_id, owner)
                if tags or claims.owners(module_id):
                    return False
            self._drop(module_id, claims)
        return True

    def tag(self, name: str, module: str, owner: str = "") -> str | None:
        """Name a module (id or tag), or move the tag there.

        Returns which module has gone with that, if any: see `untag`. Raises `UnknownModuleError`, and as
        `Tags.set`.
        """
        module_id = self.resolve(module)
        with self.claims.changing() as claims:
            if not self.has(module_id):
                raise UnknownModuleError(f"no module {module_id}")
            before = [tag.module for tag in self.tags.list() if tag.name == name]
            self.tags.set(name, module_id, owner)
            return self._drop_unwanted(before, claims)

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> str | None:
        """Take a tag away; raises as `Tags.remove`.

        The last tag of a module that all its owners have removed has kept it, and takes it along: else it
        would stay for ever, and nobody could remove it. Returns the id of such a module.
        """
        with self.claims.changing() as claims:
            before = [tag.module for tag in self.tags.list() if tag.name == name]
            self.tags.remove(name, owner, force=force)
            return self._drop_unwanted(before, claims)

    def _drop_unwanted(self, modules: Sequence[str], claims: ClaimsChange) -> str | None:
        """`modules`: what a tag named that names it no more; none or one."""
        tagged = {tag.module for tag in self.tags.list()}
        for module_id in modules:
            if claims.abandoned(module_id) and module_id not in tagged:
                self._drop(module_id, claims)
                return module_id
        return None

    def _drop(self, module_id: str, claims: ClaimsChange) -> None:
        claims.forget(module_id)
        self._discard(self._wasm_path(module_id), *self.code.glob(f"{module_id}-*"))

    def artifact_path(self, module_id: str) -> Path:
        """Where `Program.from_file` finds the code of a module that `add` or `get` returned."""
        return self.code / f"{module_id}-{self._key}.compiled"

    def _wasm_path(self, module_id: str) -> Path:
        return self._modules / f"{module_id}.wasm"

    def _info_path(self, module_id: str) -> Path:
        return self.code / f"{module_id}-{self._key}.json"

    def _described(self, module_id: str) -> ModuleInfo | None:
        path = self._info_path(module_id)
        if not is_private_file(path):
            return None
        try:
            info = ModuleInfo.from_wire(json.loads(path.read_bytes()))
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
        """Of a module that can be run: by whom it shall be."""
        if self._user is not None:
            let_read(self.artifact_path(info.id), self._user.gid)
        return self._named(info)

    def _named(self, info: ModuleInfo) -> ModuleInfo:
        return _with_names(info, self.tags.list(), self.claims.read())


def _with_names(info: ModuleInfo, tags: list[Tag], claims: dict[str, Claim]) -> ModuleInfo:
    """The description, with what is kept apart from it."""
    claim = claims.get(info.id, Claim())
    info.tags = [tag.name for tag in tags if tag.module == info.id]
    info.owners, info.created = sorted(claim.owners), claim.created
    return info


def _key(limits: Limits) -> str:
    """Modules checked against other limits than the usual ones have artifacts of their own."""
    checked, usual = ([getattr(some, name) for name in CHECKED] for some in (limits, Limits()))
    return "" if checked == usual else "-" + hashlib.sha256(repr(checked).encode()).hexdigest()[:8]
