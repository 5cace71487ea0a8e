"""Rewrite a module so that the host can reach its whole mutable state.

Memories, tables and mutable globals get exports under reserved names, and the start
function becomes an export, so that a clone is not started again. memory.grow becomes a call
of an added function that does the same and notes in an added global how many pages were
refused last: wasmtime does not tell its host.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicirt.errors import ModuleError
from aicirt.wasm.code import MEMORY_GROW, Found, scan
from aicirt.wasm.inspect import ModuleShape, inspect

#: changes whenever the output for some input changes; part of the key of compiled artifacts
REWRITER_VERSION = 1
#: export names that start like this belong to the rewriter
RESERVED = "__aici_rt_"
MEMORY = RESERVED + "memory"
TABLE = RESERVED + "table"
GLOBAL = RESERVED + "global"
START = RESERVED + "start"
#: i32: pages that the last memory.grow asked for in vain, 0 if it succeeded
REFUSED = RESERVED + "refused"

_TYPE, _FUNCTION, _GLOBAL, _EXPORT, _START, _CODE = 1, 3, 6, 7, 8, 10
#: position of each section in a module: tags lie before globals, the data count before code
_ORDER = {s: n for n, s in enumerate((1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11))}
_KIND = {"function": 0, "table": 1, "memory": 2, "global": 3}
#: func (param i32) (result i32); a mutable i32 that starts as 0
_GROW_TYPE = bytes((0x60, 1, 0x7F, 1, 0x7F))
_REFUSED_GLOBAL = bytes((0x7F, 1, 0x41, 0, 0x0B))


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
    exports = [(f"{MEMORY}{i}", "memory", i) for i in range(len(shape.memories))]
    exports += [(f"{TABLE}{i}", "table", i) for i in range(len(shape.tables))]
    exports += [(f"{GLOBAL}{i}", "global", i) for i, g in enumerate(shape.globals) if g.mutable]
    if shape.start is not None:
        exports.append((START, "function", shape.start))
    sections: dict[int, bytes | None] = {_START: None}
    grows = [found for found in scan(wasm, shape) if found.opcode == MEMORY_GROW]
    if grows:
        refused = len(shape.globals)
        exports += [(f"{GLOBAL}{refused}", "global", refused), (REFUSED, "global", refused)]
        sections |= _watch_growth(wasm, shape, grows)
    entries = [leb(len(n)) + n.encode() + bytes([_KIND[k]]) + leb(i) for n, k, i in exports]
    sections[_EXPORT] = _appended(wasm, shape, _EXPORT, len(shape.exports), entries)
    return _assemble(wasm, shape, sections)


def _watch_growth(wasm: bytes, shape: ModuleShape, grows: Sequence[Found]) -> dict[int, bytes]:
    """New types, functions, globals and code, with `grows` replaced by calls."""
    own_functions = len(shape.bodies)
    own_globals = len(shape.globals) - sum(1 for i in shape.imports if i.kind == "global")
    call = b"\x10" + leb(len(shape.functions))
    return {
        _TYPE: _appended(wasm, shape, _TYPE, len(shape.types), [_GROW_TYPE]),
        _FUNCTION: _appended(wasm, shape, _FUNCTION, own_functions, [leb(len(shape.types))]),
        _GLOBAL: _appended(wasm, shape, _GLOBAL, own_globals, [_REFUSED_GLOBAL]),
        _CODE: _code(wasm, shape, grows, call) + _grow_function(len(shape.globals)),
    }


def _grow_function(refused: int) -> bytes:
    """``previous = memory.grow(pages); refused = previous == -1 ? pages : 0; return previous``"""
    grow = bytes((0x20, 0, 0x40, 0, 0x21, 1))
    select = bytes((0x20, 0, 0x41, 0, 0x20, 1, 0x41, 0x7F, 0x46, 0x1B))
    one_i32_local = bytes((1, 1, 0x7F))
    body = one_i32_local + grow + select + b"\x24" + leb(refused) + bytes((0x20, 1, 0x0B))
    return leb(len(body)) + body


def _code(wasm: bytes, shape: ModuleShape, grows: Sequence[Found], call: bytes) -> bytes:
    """The code section for one more body, which is still to be appended."""
    section = shape.section(_CODE)
    assert section
    by_function: dict[int, list[Found]] = {}
    for found in grows:
        by_function.setdefault(found.function - shape.imported_functions, []).append(found)
    done = section.start + _leb_length(wasm, section.start)
    out = bytearray(leb(len(shape.bodies) + 1))
    for number, replaced in by_function.items():
        start, end = shape.bodies[number]
        # a body's size comes right behind the body before
        out += wasm[done : shape.bodies[number - 1][1] if number else done]
        body = bytearray()
        at = start
        for found in replaced:
            body += wasm[at : found.start] + call
            at = found.end
        body += wasm[at:end]
        out += leb(len(body)) + body
        done = end
    return bytes(out + wasm[done : section.end])


def _appended(wasm: bytes, shape: ModuleShape, section_id: int, count: int, entries: list[bytes]) -> bytes:
    """A section of `count` entries with more at its end."""
    old = shape.section(section_id)
    kept = wasm[old.start + _leb_length(wasm, old.start) : old.end] if old else b""
    return leb(count + len(entries)) + kept + b"".join(entries)


def _leb_length(data: bytes, at: int) -> int:
    length = 1
    while data[at + length - 1] >= 0x80:
        length += 1
    return length


def _assemble(wasm: bytes, shape: ModuleShape, replaced: dict[int, bytes | None]) -> bytes:
    """The module with whole sections replaced, inserted in their place, or (None) dropped."""
    pending = {i: content for i, content in replaced.items() if content is not None}
    out = bytearray(wasm[:8])

    def emit(section_id: int, content: bytes) -> None:
        out.extend(bytes([section_id]) + leb(len(content)) + content)

    for section in shape.sections:
        if section.id:
            earlier = [i for i in pending if _ORDER[i] < _ORDER[section.id]]
            for section_id in sorted(earlier, key=_ORDER.__getitem__):
                emit(section_id, pending.pop(section_id))
        if section.id in replaced:
            if section.id in pending:
                emit(section.id, pending.pop(section.id))
        else:
            emit(section.id, wasm[section.start : section.end])
    for section_id in sorted(pending, key=_ORDER.__getitem__):
        emit(section_id, pending[section_id])
    return bytes(out)
