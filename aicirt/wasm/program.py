"""A compiled controller, linked with the host functions and ready to be instantiated."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import wasmtime

from aicirt.contract.abi import EXPORTS, REQUIRED, Export
from aicirt.contract.errors import ModuleError, RuntimeFailure
from aicirt.settings import Limits
from aicirt.wasm import raw
from aicirt.wasm.module.rewrite import GLOBAL, INITIALISES, MEMORY, REFUSED, rewrite

if TYPE_CHECKING:
    from os import PathLike

    from aicirt.wasm.engine import WasmEngine
    from aicirt.wasm.host import Linker
    from aicirt.wasm.image import Image, Mapping, Shell

#: slots of an instance's export handles: functions by `Export`, then these
MEMORY_SLOT, REFUSED_SLOT, FIRST_GLOBAL_SLOT = range(len(Export), len(Export) + 3)
#: number of instances whose memory is measured; later ones take as much
MEASURED_INSTANCES = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a guest between two calls."""

    program: Program
    #: None = the memory of a fresh instance
    image: Image | None
    #: bytes of memory, mappings included
    size: int
    globals: bytes
    mappings: tuple[Mapping, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that only the snapshot takes, for a cache with a limit."""
        return self.image.stored if self.image else 0


class Started(NamedTuple):
    """The state of all guests with this vocabulary and capabilities before they get an argument."""

    vocabulary: object
    capabilities: dict[int, int]
    snapshot: Snapshot


class Program:
    """A compiled module that is loaded in this process; each `Instance` is a guest of it."""

    __slots__ = (
        "arity",
        "callbacks",
        "critical_ns",
        "engine",
        "global_names",
        "has",
        "host_work",
        "id",
        "initial_runs",
        "instance_bytes",
        "limit_ns",
        "limits",
        "linker",
        "module",
        "names",
        "num_instances",
        "pre",
        "restarts",
        "spares",
        "started",
        "watches_growth",
    )

    def __init__(self, linker: Linker, module: wasmtime.Module) -> None:
        """Raises `ModuleError` if an import does not match or a required export is missing."""
        #: id of the module, as in other processes; set by the loader
        self.id = ""
        self.linker = linker
        self.engine: WasmEngine = linker.engine
        self.limits: Limits = linker.engine.limits
        self.module = module
        exports = raw.export_names(raw.pointer(module))
        missing = [EXPORTS[e][0] for e in REQUIRED if EXPORTS[e][0] not in exports]
        if missing or f"{MEMORY}0" not in exports:
            raise ModuleError(f"the compiled module lacks {', '.join(missing) or 'the rewritten memory'}")
        numbers = sorted(int(n.removeprefix(GLOBAL)) for n in exports if n.startswith(GLOBAL))
        self.global_names = tuple(f"{GLOBAL}{n}".encode() for n in numbers)
        self.watches_growth = REFUSED in exports
        #: whether an ended guest can get the state of a new one again
        self.restarts = INITIALISES not in exports
        self.names = tuple(name.encode() for name, _ in EXPORTS.values())
        # tuples indexed by `Export`: a lookup by a member of an Enum takes as long as a call
        self.callbacks = tuple(name for name, _ in EXPORTS.values())
        self.arity = tuple(len(kind.params) for _, kind in EXPORTS.values())
        #: whether the module exports each function, by `Export`
        self.has = tuple(name in exports for name, _ in EXPORTS.values())
        limits = self.limits
        ms = {
            Export.PRE: limits.pre_ms,
            Export.MID: limits.mid_ms,
            Export.POST: limits.post_ms,
            Export.WARM: limits.warm_ms,
            Export.FOUND: limits.warm_ms,
        }
        #: CPU time limit of a call in ns, by `Export`
        self.limit_ns = tuple(int(ms.get(e, limits.init_ms) * 1e6) for e in Export)
        #: work of host functions in a call whose time is not the guest's, by `Export`: bytes of text
        self.host_work = tuple(limits.mid_tokenize_bytes if e == Export.MID else 0 for e in Export)
        #: CPU time in ns for PRE and POST: added in each step, and the most that a sequence saves
        added = limits.pre_ms * self.has[Export.PRE] + limits.post_ms * self.has[Export.POST]
        self.critical_ns = int(added * 1e6), int(max(added, limits.critical_saved_ms) * 1e6)
        #: nonzero pages (offset, bytes) of a fresh memory; None until they are first needed
        self.initial_runs: list[tuple[int, int]] | None = None
        #: the most memory that making an instance took, and how many were measured: see `count_instance`
        self.instance_bytes = self.num_instances = 0
        #: ended guests from which others can start again
        self.spares: list[Shell] = []
        #: None if it has not been found, or depends on the request
        self.started: Started | None = None
        pre = ctypes.c_void_p()
        error = raw.linker_instantiate_pre(
            raw.pointer(linker.wasmtime), raw.pointer(module), ctypes.addressof(pre)
        )
        if error:
            raise ModuleError(f"the module cannot be linked: {raw.take_error(error)}")
        assert pre.value
        self.pre: int = pre.value

    @classmethod
    def from_file(cls, linker: Linker, path: str | PathLike[str]) -> Program:
        """Loads a compiled artifact, which is trusted: it must come from a private directory.

        Raises `ModuleError` if it was compiled by another wasmtime or for another CPU.
        """
        try:
            module = wasmtime.Module.deserialize_file(linker.engine.wasmtime, str(path))
        except wasmtime.WasmtimeError as error:
            raise ModuleError(f"compiled module {path} cannot be loaded: {error}") from None
        return cls(linker, module)

    @classmethod
    def compile(cls, linker: Linker, wasm: bytes) -> Program:
        """Rewrites and compiles a module in this process; only for tests and trusted modules."""
        return cls(linker, compile_module(linker.engine, wasm))

    def count_instance(self, nbytes: int) -> None:
        """Counts an instance whose tables, functions and globals took `nbytes` of memory."""
        if self.num_instances:  # the first instance also loads code pages
            self.instance_bytes = max(self.instance_bytes, nbytes)
        self.num_instances += 1

    def close(self) -> None:
        """Frees the compiled code. Close all instances and snapshots first."""
        self.started = None
        for shell in self.spares:
            shell.close()
        if self.pre:
            raw.instance_pre_delete(self.pre)
            self.pre = 0
            self.module.close()

    def __del__(self) -> None:
        if getattr(self, "pre", 0):
            self.close()


def compile_module(engine: WasmEngine, wasm: bytes) -> wasmtime.Module:
    """Rewrites and compiles a module. Raises `ModuleError` with the compiler's message, or MemoryError.

    Validates the original module first: rewriting adds functions, types and globals, so an index that is out
    of range could point to one of them afterwards.
    """
    try:
        wasmtime.Module.validate(engine.wasmtime, wasm)
        return wasmtime.Module(engine.wasmtime, rewrite(wasm))
    except wasmtime.WasmtimeError as error:
        if f"os error {errno.ENOMEM}" in str(error):
            raise MemoryError from None  # not the module's fault
        raise ModuleError(f"the module does not compile: {error}") from None


def serialize(module: wasmtime.Module) -> bytes:
    """Returns the artifact that `Program.from_file` loads."""
    try:
        return bytes(module.serialize())
    except wasmtime.WasmtimeError as error:
        raise RuntimeFailure(f"the compiled module cannot be stored: {error}") from None
