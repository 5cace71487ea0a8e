"""Rewrites a module to export its mutable state, bound its running time, and sanitize its names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from aicirt.contract.errors import ModuleError
from aicirt.settings import Limits
from aicirt.wasm.module.checkpoints import (
    BULK,
    CHECKPOINT,
    MEMORY_GROW,
    MEMORY_INIT,
    Found,
    checkpoints,
    scan,
)
from aicirt.wasm.module.reader import ModuleShape, WasmReader, inspect, leb

#: first bytes of the custom section with names
NAMES = b"\x04name"
#: characters of one name; a backtrace has about 20 names
MAX_NAME = 200
#: bytes of names in one module; a larger section is dropped
MAX_NAMES = 1 << 20
_FUNCTIONS = 1
#: prefixes that the demanglers of C++ and Rust recognize
_MANGLED = re.compile(r"_{1,4}Z|_{0,2}(?:ZN|R[A-Z0-9]|GLOBAL_)")
#: Itanium C++ and legacy Rust: optional nesting with qualifiers, identifiers after their lengths
_START_OF_NAME = re.compile(r"_{1,4}Z(N[KVrRO]*)?(?:St)?")
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")
#: the last part of a legacy Rust name
_HASH = re.compile(r"h[0-9a-f]{16}")


def harmless(section: bytes) -> bytes | None:
    """Returns a name section that has only sanitized function names; None if it cannot be read.

    `section` is the content of the custom section, which begins with the section's own name.
    """
    try:
        names = list(_function_names(section))
    except ModuleError:
        return None
    entries = b"".join(leb(index) + leb(len(name)) + name for index, name in names)
    content = leb(len(names)) + entries
    return NAMES + bytes([_FUNCTIONS]) + leb(len(content)) + content


def _function_names(section: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields index and sanitized name of each function, in file order. Raises ModuleError if malformed."""
    if len(section) > MAX_NAMES:
        raise ModuleError(f"its name section has {len(section)} bytes, more than the limit of {MAX_NAMES}")
    reader = WasmReader(section, len(NAMES), where="name section")
    while reader.pos < reader.end:
        kind, size = reader.byte(), reader.uint()
        start = reader.pos
        reader.skip(size)
        if kind != _FUNCTIONS:
            continue
        names = WasmReader(section, start, reader.pos, "function names")
        for _ in range(names.count("names")):
            index = names.uint()
            yield index, readable(names.name()).encode()
        return


def readable(name: str) -> str:
    """Returns a name of at most `MAX_NAME` printable characters that no demangler recognizes."""
    text = "".join(c if c.isprintable() else "?" for c in name[: 4 * MAX_NAME])
    if _MANGLED.match(text):
        text = f"fn {'::'.join(_identifiers(text)) or '?'} [{text}]"
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def _identifiers(mangled: str) -> list[str]:
    """Returns the identifiers at the start of a mangled name, up to the first part that needs a demangler."""
    found: list[str] = []
    start = _START_OF_NAME.match(mangled)
    at = start.end() if start else len(mangled)
    while length := _LENGTH.match(mangled, at):
        at = length.end() + int(length[0])
        identifier = mangled[length.end() : at]
        if not _HASH.fullmatch(identifier):
            found.append(identifier)
        if not (start and start[1]):
            break  # the types of parameters follow
    return found


_ELEMENT, _DATA, _TAG = 9, 11, 13
_COUNTED = {_ELEMENT: "element segments", _DATA: "data segments", _TAG: "tags"}
#: wasmtime maps data that is dense or spans at most this much. Other data is copied into each instance,
#: segment by segment: 30 ms for 16 MiB
_DENSE_BYTES = 16 << 20
_CONST, _END = 0x41, 0x0B


def segment_problems(wasm: bytes, shape: ModuleShape, limits: Limits) -> Iterator[str]:
    """Yields reasons to refuse a module. Raises `ModuleError` if a segment is malformed."""
    few = True
    for section_id, what in _COUNTED.items():
        section = shape.section(section_id)
        if section is None:
            continue
        count = WasmReader(wasm, section.start, section.end, what).count(what)
        if count > limits.items:
            yield f"it has {count} {what}, more than the limit of {limits.items}"
            few = False
    if few:
        yield from _data(wasm, shape)
        yield from _elements(wasm, shape, limits)


def _data(wasm: bytes, shape: ModuleShape) -> Iterator[str]:
    section = shape.section(_DATA)
    if section is None:
        return
    reader = WasmReader(wasm, section.start, section.end, "data section")
    first, last = None, 0
    for number in range(reader.count("segments")):
        flags = reader.uint()
        if flags > 2:
            raise reader.fail(f"unknown flags {flags} of data segment {number}")
        start: int | None = 0
        if flags == 2:
            reader.uint()
        if flags != 1:
            start = _offset(reader)
            if start is None:
                yield _computed("data", number)
                return
        length = reader.uint()
        reader.skip(length)
        if flags != 1 and length:
            assert start is not None
            first = start if first is None else min(first, start)
            last = max(last, start + length)
    if last - (first or 0) > _DENSE_BYTES:
        yield (
            f"its data segments span {last - (first or 0)} bytes of memory, more than the limit of "
            f"{_DENSE_BYTES}: fill large tables in aici_init"
        )


def _elements(wasm: bytes, shape: ModuleShape, limits: Limits) -> Iterator[str]:
    section = shape.section(_ELEMENT)
    if section is None:
        return
    reader = WasmReader(wasm, section.start, section.end, "element section")
    filled = 0
    for number in range(reader.count("segments")):
        flags = reader.uint()
        if flags > 7:
            raise reader.fail(f"unknown flags {flags} of element segment {number}")
        active = not flags & 1
        if active:
            if flags & 2:
                reader.uint()
            if _offset(reader) is None:
                yield _computed("element", number)
                return
        if flags & 3:
            reader.value_type() if flags & 4 else reader.byte()
        count = reader.count("elements")
        filled += count if active else 0
        if filled > limits.table_elements:
            yield (f"its element segments fill more table entries than the limit of {limits.table_elements}")
            return
        for _ in range(count):
            if flags & 4:
                reader.skip_const_expr()
            else:
                reader.skip_leb()


def _offset(reader: WasmReader) -> int | None:
    """Reads the address of an active segment; None if it is not a plain number."""
    if reader.byte() != _CONST:
        return None
    value = reader.sint()
    return value & 0xFFFFFFFF if reader.byte() == _END else None


def _computed(what: str, number: int) -> str:
    return (
        f"the offset of its {what} segment {number} is computed at instantiation, but must be a constant: "
        "compile without -fPIC and -mextended-const"
    )


#: prefix of the rewriter's export names
RESERVED = "__aici_rt_"
MEMORY = RESERVED + "memory"
TABLE = RESERVED + "table"
GLOBAL = RESERVED + "global"
START = RESERVED + "start"
#: i32 global: pages that the last memory.grow was refused, 0 if it succeeded
REFUSED = RESERVED + "refused"
#: the memory, of a module that has memory.init: whether a data segment was dropped is part of its state
INITIALISES = RESERVED + "initialises"

_TYPE, _FUNCTION, _GLOBAL, _EXPORT, _START, _CODE = 1, 3, 6, 7, 8, 10
#: position of each section in a module: tags come before globals, the data count before code
_ORDER = {s: n for n, s in enumerate((1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11))}
_KIND = {"function": 0, "table": 1, "memory": 2, "global": 3}
#: memory.copy and memory.fill, after their prefix
_COPY, _FILL = 0x0A, 0x0B
#: local.get of the arguments of the functions that replace them
_TO, _FROM, _COUNT = b"\x20\0", b"\x20\1", b"\x20\2"
#: i32.const 256 KiB, the bytes of one piece: 0.1 ms if the piece touches each page for the first time
_STEP = b"\x41\x80\x80\x10"
#: func (param i32) (result i32), and func (param i32 i32 i32)
_GROW_TYPE = bytes((0x60, 1, 0x7F, 1, 0x7F))
_BULK_TYPE = bytes((0x60, 3, 0x7F, 0x7F, 0x7F, 0))
#: a mutable i32 that starts as 0
_REFUSED_GLOBAL = bytes((0x7F, 1, 0x41, 0, 0x0B))


class _Change(NamedTuple):
    """Code that replaces the bytes between two offsets in the file."""

    function: int
    start: int
    end: int
    code: bytes


def rewrite(wasm: bytes, shape: ModuleShape | None = None) -> bytes:
    """Returns `wasm` with its mutable state exported, growth recorded, checkpoints added and names sanitized.

    Raises `ModuleError` if the module is malformed or uses reserved export names.
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
    if any(f.opcode == MEMORY_INIT for f in moved):
        exports.append((INITIALISES, "memory", 0))
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
    """Returns new type, function, global and code sections.

    Calls of added functions replace the `moved` instructions; `stops` are the places of checkpoints.
    """
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
    """Returns the body of a function that grows the memory and records what was refused.

    ``previous = memory.grow(pages); refused = previous == -1 ? pages : 0; return previous``
    """
    one_i32_local = bytes((1, 1, 0x7F))
    grown = bytes((0x20, 0)) + grow + bytes((0x21, 1))
    select = bytes((0x20, 0, 0x41, 0, 0x20, 1, 0x41, 0x7F, 0x46, 0x1B))
    return one_i32_local + grown + select + b"\x24" + leb(refused) + bytes((0x20, 1, 0x0B))


def _bulk_body(instruction: bytes) -> bytes:
    """Returns the body of ``(to, from, count)``: the instruction on `_STEP` bytes at a time, then the rest.

    For memory.fill, ``from`` is the value, which does not advance.
    """
    opcode = WasmReader(instruction, 1).uint()  # the LEB128 number may have more bytes than it needs
    whole = _TO + _FROM + _COUNT + instruction
    forward = _TO + _FROM + _STEP + instruction + _TO + _STEP + b"\x6a\x21\0"
    if opcode != _FILL:
        forward += _FROM + _STEP + b"\x6a\x21\1"
    body = _while_longer(forward + _COUNT + _STEP + b"\x6b\x21\2") + whole
    if opcode == _COPY:  # if the ranges overlap, the end must be copied first
        ends = _TO + _COUNT + b"\x6a" + _FROM + _COUNT + b"\x6a" + _STEP + instruction
        backward = _while_longer(_COUNT + _STEP + b"\x6b\x21\2" + ends)
        body = _TO + _FROM + b"\x4b\x04\x40" + backward + whole + b"\x0f\x0b" + body
    return b"\0" + body + b"\x0b"


def _while_longer(code: bytes) -> bytes:
    """Returns a loop that repeats `code` while the count is more than a piece."""
    longer = _COUNT + _STEP
    # a block with a br_if that skips the loop; the loop tests again at its end
    return b"\x02\x40" + longer + b"\x4d\x0d\0" + b"\x03\x40" + code + longer + b"\x4b\x0d\0\x0b\x0b"


def _code(wasm: bytes, shape: ModuleShape, changes: Sequence[_Change]) -> bytes:
    """Returns all function bodies with the changes applied, each after its size."""
    section = shape.section(_CODE)
    assert section
    done = section.start + _leb_length(wasm, section.start)
    out = bytearray()
    for function, replaced in groupby(changes, lambda change: change.function):
        number = function - shape.imported_functions
        start, end = shape.bodies[number]
        # a body's size directly follows the previous body
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
    """Returns a section of `count` entries with `entries` appended."""
    old = shape.section(section_id)
    kept = wasm[old.start + _leb_length(wasm, old.start) : old.end] if old else b""
    return leb(count + len(entries)) + kept + b"".join(entries)


def _leb_length(data: bytes, at: int) -> int:
    length = 1
    while data[at + length - 1] >= 0x80:
        length += 1
    return length


def _assemble(wasm: bytes, shape: ModuleShape, replaced: dict[int, bytes | None]) -> bytes:
    """Returns the module with whole sections replaced, inserted in order, or (None) dropped."""
    pending = {i: content for i, content in replaced.items() if content is not None}
    out = bytearray(wasm[:8])

    def emit(section_id: int, content: bytes) -> None:
        out.extend(bytes([section_id]) + leb(len(content)) + content)

    for section in shape.sections:
        if section.id:
            earlier = [i for i in pending if _ORDER[i] < _ORDER[section.id]]
            for section_id in sorted(earlier, key=_ORDER.__getitem__):
                emit(section_id, pending.pop(section_id))
        if section.id == 0:  # other custom sections may describe code that has changed
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
