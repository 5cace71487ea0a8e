"""Rewrite a module so that the host can reach its whole mutable state.

Memories, tables and mutable globals get exports under reserved names, and the start
function becomes an export, so that a clone is not started again.
"""

from __future__ import annotations

from aicirt.errors import ModuleError
from aicirt.wasm.inspect import ModuleShape, inspect

#: changes whenever the output for some input changes; part of the key of compiled artifacts
REWRITER_VERSION = 1
#: export names that start like this belong to the rewriter
RESERVED = "__aici_rt_"
MEMORY = RESERVED + "memory"
TABLE = RESERVED + "table"
GLOBAL = RESERVED + "global"
START = RESERVED + "start"

_EXPORT, _START = 7, 8
_KIND = {"function": 0, "table": 1, "memory": 2, "global": 3}


def leb(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def rewrite(wasm: bytes, shape: ModuleShape | None = None) -> bytes:
    """`wasm` with its mutable state exported.

    Raises `ModuleError` for a malformed module or one that uses reserved export names.
    """
    shape = shape or inspect(wasm)
    clash = [e.name for e in shape.exports if e.name.startswith(RESERVED)]
    if clash:
        raise ModuleError(f"export {clash[0]!r}: names that start with {RESERVED!r} are reserved")
    added = [(f"{MEMORY}{i}", "memory", i) for i in range(len(shape.memories))]
    added += [(f"{TABLE}{i}", "table", i) for i in range(len(shape.tables))]
    added += [(f"{GLOBAL}{i}", "global", i) for i, g in enumerate(shape.globals) if g.mutable]
    if shape.start is not None:
        added.append((START, "function", shape.start))
    return _assemble(wasm, shape, {_EXPORT: _exports(wasm, shape, added), _START: None})


def _exports(wasm: bytes, shape: ModuleShape, added: list[tuple[str, str, int]]) -> bytes:
    old = shape.section(_EXPORT)
    entries = b""
    if old:
        entries = wasm[old.start : old.end]
        entries = entries[_leb_length(entries) :]
    new = b"".join(leb(len(n)) + n.encode() + bytes([_KIND[k]]) + leb(i) for n, k, i in added)
    return leb(len(shape.exports) + len(added)) + entries + new


def _leb_length(data: bytes) -> int:
    return next(i for i, byte in enumerate(data) if byte < 0x80) + 1


def _assemble(wasm: bytes, shape: ModuleShape, replaced: dict[int, bytes | None]) -> bytes:
    """The module with whole sections replaced, inserted in their place, or (None) dropped."""
    pending = {i: content for i, content in replaced.items() if content is not None}
    out = bytearray(wasm[:8])

    def emit(section_id: int, content: bytes) -> None:
        out.extend(bytes([section_id]) + leb(len(content)) + content)

    for section in shape.sections:
        for earlier in [i for i in pending if section.id and _ORDER[i] < _ORDER[section.id]]:
            emit(earlier, pending.pop(earlier))
        if section.id in replaced:
            if section.id in pending:
                emit(section.id, pending.pop(section.id))
        else:
            emit(section.id, wasm[section.start : section.end])
    for section_id in sorted(pending, key=_ORDER.__getitem__):
        emit(section_id, pending[section_id])
    return bytes(out)


#: position of each section in a module: tags lie before globals, the data count before code
_ORDER = {s: n for n, s in enumerate((1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11))}
