"""Checks whether a module is a valid controller; reports every problem and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from aicirt.contract.abi import (
    ABI_VERSION,
    EXPORTS,
    IMPORT_MODULE,
    MARKER,
    REQUIRED,
    WASI,
    FuncType,
    known_imports,
)
from aicirt.contract.errors import ModuleError, counted
from aicirt.settings import WASM_PAGE, Limits
from aicirt.wasm.module.checkpoints import TABLE_MUTATORS, scan
from aicirt.wasm.module.reader import NUMERIC, Export, Import, ModuleShape, inspect
from aicirt.wasm.module.rewrite import RESERVED, segment_problems

#: more reasons of one kind than this are counted, not listed
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """The result of checking a file; only `size` and `reasons` are set if it cannot be read."""

    size: int
    #: reasons to refuse the file; empty = accepted
    reasons: list[str]
    #: version of the exported marker, even if this runtime does not support it; None = no marker
    abi_version: int | None = None
    imports: list[Import] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)
    #: initial size of the linear memory in bytes
    initial_memory: int = 0
    has_init: bool = False
    has_init_prompt: bool = False
    has_pre: bool = False
    has_post: bool = False

    @property
    def accepted(self) -> bool:
        return not self.reasons

    def require(self) -> None:
        """Raises `ModuleError` with all reasons, if any."""
        if self.reasons:
            more = f" (and {counted(len(self.reasons) - 1, 'more reason')})" if len(self.reasons) > 1 else ""
            raise ModuleError(f"the module is refused: {self.reasons[0]}{more}", reasons=self.reasons)


def check(wasm: bytes, limits: Limits | None = None) -> ModuleReport:
    """Checks a module without compiling it. Never raises.

    `CHECKED` in aicirt/modules/store.py names the limits that count here.
    """
    limits = limits or Limits()
    if len(wasm) > limits.module_bytes:
        reason = f"the file has {len(wasm)} bytes, more than the limit of {limits.module_bytes}"
        return ModuleReport(len(wasm), [reason])
    try:
        shape = inspect(wasm)
    except ModuleError as error:
        return ModuleReport(len(wasm), [error.message])
    names = {e.name for e in shape.exports if e.kind == "function"}
    version, marker_reasons = _abi_version(shape)
    reasons = marker_reasons + [
        reason
        for look in (_start, _counts, _exports, _imports, _memory, _tables, _state)
        for reason in look(shape, limits)
    ]
    return ModuleReport(
        len(wasm),
        reasons + list(_segments(wasm, shape, limits)) + list(_code(wasm, shape)),
        version,
        shape.imports,
        shape.exports,
        shape.memories[0].minimum * WASM_PAGE if shape.memories else 0,
        "aici_init" in names,
        "aici_init_prompt" in names,
        "aici_pre_process" in names,
        "aici_post_process" in names,
    )


def _abi_version(shape: ModuleShape) -> tuple[int | None, list[str]]:
    found = [re.fullmatch(MARKER + "([0-9]{1,9})", e.name) for e in shape.exports if e.kind == "function"]
    versions = sorted(int(match[1]) for match in found if match)
    if ABI_VERSION in versions:
        return ABI_VERSION, []
    if versions:
        reason = f"it is built for ABI version {versions[-1]}, this runtime has version {ABI_VERSION}"
        return versions[-1], [f"{reason}: build it with the SDK of this runtime"]
    return None, [
        f"it does not export {MARKER}{ABI_VERSION}: put AICI_REGISTER(...) in C++, AICI_CONTROLLER in C or "
        "aici.controller() in Zig into one source file"
    ]


def _start(shape: ModuleShape, _limits: Limits) -> Iterator[str]:
    if shape.export("_start", "function"):
        yield (
            "it is a command (it exports _start), not a reactor: compile with -mexec-model=reactor "
            "(Rust: crate-type cdylib) and without main"
        )
    if shape.start is not None and shape.start < shape.imported_functions:
        yield "its start function is an import: start with a function that calls it"


def _counts(shape: ModuleShape, limits: Limits) -> Iterator[str]:
    for what, count, limit in (
        ("types", len(shape.types), limits.items),
        (
            "parameters and results of types",
            sum(len(kind.params) + len(kind.results) for kind in shape.types),
            limits.items,
        ),
        ("functions", len(shape.bodies), limits.functions),
        ("globals", len(shape.globals), limits.items),
        ("imports", len(shape.imports), limits.items),
        ("bytes of names of exports", sum(len(e.name.encode()) for e in shape.exports), limits.export_bytes),
    ):
        if count > limit:
            yield f"it has {count} {what}, more than the limit of {limit}"
    if len(shape.exports) > limits.exports:
        yield (
            f"it has {len(shape.exports)} exports, more than the limit of {limits.exports}: export only what "
            "the host calls (no --export-all or --export-dynamic)"
        )
    mutable = sum(1 for item in shape.globals if item.mutable)
    if mutable > limits.mutable_globals:
        yield f"it has {mutable} mutable globals, more than the limit of {limits.mutable_globals}"


def _exports(shape: ModuleShape, _limits: Limits) -> Iterator[str]:
    if not shape.export("memory", "memory"):
        yield "it does not export its memory under the name memory"
    for export, (name, kind) in EXPORTS.items():
        found = next((e for e in shape.exports if e.name == name), None)
        if found is None:
            if export in REQUIRED:
                yield f"it does not export the function {name}"
        elif found.kind != "function":
            yield f"its export {name} is a {found.kind}, not a function"
        elif shape.functions[found.index] != kind:
            yield f"its export {name} has type {shape.functions[found.index]}, expected {kind}"
        elif found.index < shape.imported_functions:
            yield f"its export {name} is an import: export a function that calls it"
    for found in shape.exports:
        if found.name.startswith(RESERVED):
            yield f"its export {found.name} starts with {RESERVED}, which is reserved"


def _imports(shape: ModuleShape, _limits: Limits) -> Iterator[str]:
    known = known_imports()
    unknown = [i for i in shape.imports if (i.module, i.name) not in known or i.kind != "function"]
    for item in unknown[:_MAX_LISTED]:
        yield f"it imports {item.kind} {item.module}.{item.name}, which does not exist{_import_hint(item)}"
    if len(unknown) > _MAX_LISTED:
        yield f"it has {len(unknown) - _MAX_LISTED} more unknown imports"
    for item in shape.imports:
        expected = known.get((item.module, item.name))
        if expected and isinstance(item.type, FuncType) and item.type != expected:
            yield f"its import {item.module}.{item.name} has type {item.type}, expected {expected}"


def _import_hint(item: Import) -> str:
    if item.kind == "memory":
        return ": define and export the memory (no --import-memory)"
    if item.module == "env":
        return ": an undefined symbol; link the object or library that defines it"
    if item.module.startswith("wasi") and item.module != WASI:
        return f": only {WASI} is known, build for wasm32-wasi preview 1"
    if item.module == IMPORT_MODULE:
        return " in this runtime"
    return ""


def _memory(shape: ModuleShape, limits: Limits) -> Iterator[str]:
    if len(shape.memories) > 1:
        yield f"it has {len(shape.memories)} memories; one is allowed"
    for memory in shape.memories:
        if memory.is_64:
            yield "its memory has 64-bit addresses: build for wasm32"
        if memory.shared:
            yield "its memory is shared between threads: compile without -pthread and -matomics"
        if memory.page_log2 != 16:
            yield "its memory has a custom page size"
        elif memory.minimum * WASM_PAGE > limits.memory_bytes:
            yield (
                f"its memory starts with {memory.minimum * WASM_PAGE} bytes, more than the limit of "
                f"{limits.memory_bytes}: is the stack or a static array too large (-Wl,-z,stack-size=65536)?"
            )


def _tables(shape: ModuleShape, limits: Limits) -> Iterator[str]:
    if len(shape.tables) > limits.tables:
        yield f"it has {len(shape.tables)} tables, more than the limit of {limits.tables}"
    for table in shape.tables:
        if table.is_64:
            yield "its table has 64-bit indices"
        elif table.minimum > limits.table_elements:
            yield f"its table has {table.minimum} elements, more than the limit of {limits.table_elements}"


def _state(shape: ModuleShape, _limits: Limits) -> Iterator[str]:
    """Yields a reason for each piece of state that cannot be copied to a clone."""
    for index, item in enumerate(shape.globals):
        if item.mutable and item.value not in NUMERIC:
            yield f"its mutable global {index} holds a {item.value}: references cannot be cloned"


def _segments(wasm: bytes, shape: ModuleShape, limits: Limits) -> Iterator[str]:
    try:
        yield from segment_problems(wasm, shape, limits)
    except ModuleError as error:
        yield error.message


def _code(wasm: bytes, shape: ModuleShape) -> Iterator[str]:
    functions: dict[str, set[int]] = {}
    try:
        for found in scan(wasm, shape):
            if found.opcode in TABLE_MUTATORS:
                functions.setdefault(TABLE_MUTATORS[found.opcode], set()).add(found.function)
    except ModuleError as error:
        yield error.message
    for name, where in functions.items():
        listed = ", ".join(str(f) for f in sorted(where)[:_MAX_LISTED])
        yield f"it changes a table ({name} in function {listed}): a changed table cannot be cloned"
