"""Rewrite a module so that the host can reach its whole mutable state, and end it at any time.

Memories, tables and mutable globals get exports under reserved names, and the start
function becomes an export, so that a clone is not started again.

Some instructions become calls of added functions that do the same. That of memory.grow also
notes in an added global how many pages were refused last, which wasmtime does not tell its
host. Those of memory.copy, memory.fill and memory.init exist because time limits are looked
at where functions begin and loops repeat: one such instruction on the whole memory takes
30 ms, and a row of them any time. The functions do a piece of it at a time. Whether a part
has been done before it traps makes no difference: a guest that has trapped never runs again.

For the same reason checkpoints are put into straight code (`aicirt.wasm.checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from aicirt.errors import ModuleError
from aicirt.wasm.checkpoints import CHECKPOINT, checkpoints
from aicirt.wasm.code import BULK, MEMORY_GROW, Found, scan
from aicirt.wasm.inspect import ModuleShape, inspect
from aicirt.wasm.names import NAMES, harmless
from aicirt.wasm.reader import Reader, leb

#: changes whenever the output for some input changes, or it is refused; part of the key of compiled artifacts
REWRITER_VERSION = 8
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
#: memory.copy and memory.fill, behind their prefix
_COPY, _FILL = 0x0A, 0x0B
#: local.get of the arguments of an added function for them
_TO, _FROM, _COUNT = b"\x20\0", b"\x20\1", b"\x20\2"
#: i32.const 256 KiB, the bytes of one piece: 0.1 ms if each page is touched for the first time
_STEP = b"\x41\x80\x80\x10"
#: func (param i32) (result i32), and func (param i32 i32 i32)
_GROW_TYPE = bytes((0x60, 1, 0x7F, 1, 0x7F))
_BULK_TYPE = bytes((0x60, 3, 0x7F, 0x7F, 0x7F, 0))
#: a mutable i32 that starts as 0
_REFUSED_GLOBAL = bytes((0x7F, 1, 0x41, 0, 0x0B))


class _Change(NamedTuple):
    """Code that takes the place of what is between two offsets in the file."""

    function: int
    start: int
    end: int
    code: bytes


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
    moved = [f for f in scan(wasm, shape) if f.opcode == MEMORY_GROW or f.opcode in BULK]
    stops = list(checkpoints(wasm, shape))
    if moved or stops:
        sections |= _change_code(wasm, shape, moved, stops)
    if _GLOBAL in sections:
        refused = len(shape.globals)
        exports += [(f"{GLOBAL}{refused}", "global", refused), (REFUSED, "global", refused)]
    entries = [leb(len(n)) + n.encode() + bytes([_KIND[k]]) + leb(i) for n, k, i in exports]
    sections[_EXPORT] = _appended(wasm, shape, _EXPORT, len(shape.exports), entries)
    return _assemble(wasm, shape, sections)


def _change_code(
    wasm: bytes, shape: ModuleShape, moved: Sequence[Found], stops: Sequence[tuple[int, int]]
) -> dict[int, bytes | None]:
    """New types, functions, globals and code: `moved` instructions become calls, `stops` checkpoints."""
    instructions = list(dict.fromkeys(wasm[f.start : f.end] for f in moved))
    calls = {code: b"\x10" + leb(len(shape.functions) + n) for n, code in enumerate(instructions)}
    changes = [_Change(f.function, f.start, f.end, calls[wasm[f.start : f.end]]) for f in moved]
    changes += [_Change(function, at, at, CHECKPOINT) for function, at in stops]
    grow_type = len(shape.types)
    types, added = [], b""
    for code in instructions:
        is_grow = code[0] == MEMORY_GROW
        types.append(leb(grow_type if is_grow else grow_type + 1))
        body = _grow_body(code, len(shape.globals)) if is_grow else _bulk_body(code)
        added += leb(len(body)) + body
    count = leb(len(shape.bodies) + len(instructions))
    sections: dict[int, bytes | None] = {_CODE: count + _code(wasm, shape, sorted(changes)) + added}
    if moved:
        sections[_TYPE] = _appended(wasm, shape, _TYPE, len(shape.types), [_GROW_TYPE, _BULK_TYPE])
        sections[_FUNCTION] = _appended(wasm, shape, _FUNCTION, len(shape.bodies), types)
    if any(f.opcode == MEMORY_GROW for f in moved):
        own_globals = len(shape.globals) - sum(1 for i in shape.imports if i.kind == "global")
        sections[_GLOBAL] = _appended(wasm, shape, _GLOBAL, own_globals, [_REFUSED_GLOBAL])
    return sections


def _grow_body(grow: bytes, refused: int) -> bytes:
    """``previous = memory.grow(pages); refused = previous == -1 ? pages : 0; return previous``"""
    one_i32_local = bytes((1, 1, 0x7F))
    grown = bytes((0x20, 0)) + grow + bytes((0x21, 1))
    select = bytes((0x20, 0, 0x41, 0, 0x20, 1, 0x41, 0x7F, 0x46, 0x1B))
    return one_i32_local + grown + select + b"\x24" + leb(refused) + bytes((0x20, 1, 0x0B))


def _bulk_body(instruction: bytes) -> bytes:
    """``(to, from, count)``: the instruction on `_STEP` bytes at a time, then on the rest.

    ``from`` is a value for memory.fill, which does not move.
    """
    opcode = Reader(instruction, 1).uint()  # which may be spelled in more bytes than it needs
    whole = _TO + _FROM + _COUNT + instruction
    forward = _TO + _FROM + _STEP + instruction + _TO + _STEP + b"\x6a\x21\0"
    if opcode != _FILL:
        forward += _FROM + _STEP + b"\x6a\x21\1"
    body = _while_longer(forward + _COUNT + _STEP + b"\x6b\x21\2") + whole
    if opcode == _COPY:  # where they overlap, the end must move first
        ends = _TO + _COUNT + b"\x6a" + _FROM + _COUNT + b"\x6a" + _STEP + instruction
        backward = _while_longer(_COUNT + _STEP + b"\x6b\x21\2" + ends)
        body = _TO + _FROM + b"\x4b\x04\x40" + backward + whole + b"\x0f\x0b" + body
    return b"\0" + body + b"\x0b"


def _while_longer(code: bytes) -> bytes:
    """`code` again and again, as long as the count is more than a piece."""
    longer = _COUNT + _STEP
    # block, br_if over a loop; the loop looks again at its end
    return b"\x02\x40" + longer + b"\x4d\x0d\0" + b"\x03\x40" + code + longer + b"\x4b\x0d\0\x0b\x0b"


def _code(wasm: bytes, shape: ModuleShape, changes: Sequence[_Change]) -> bytes:
    """All function bodies, with their sizes."""
    section = shape.section(_CODE)
    assert section
    done = section.start + _leb_length(wasm, section.start)
    out = bytearray()
    for function, replaced in groupby(changes, lambda change: change.function):
        number = function - shape.imported_functions
        start, end = shape.bodies[number]
        # a body's size comes right behind the body before
        out += wasm[done : shape.bodies[number - 1][1] if number else done]
        body = bytearray()
        at = start
        for change in replaced:
            body += wasm[at : change.start] + change.code
            at = change.end
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
        if section.id == 0:  # others than names may describe code that is changed here
            content = wasm[section.start : section.end]
            if content.startswith(NAMES) and (names := harmless(content)) is not None:
                emit(0, names)
            continue
        if section.id in replaced:
            if section.id in pending:
                emit(section.id, pending.pop(section.id))
        else:
            emit(section.id, wasm[section.start : section.end])
    for section_id in sorted(pending, key=_ORDER.__getitem__):
        emit(section_id, pending[section_id])
    return bytes(out)
