"""Splits modules into sections, and sections into entries, as far as they are well-formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aicirt.contract.errors import ModuleError
from aicirt.wasm.module.reader import WasmReader, leb

TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT, TAG = range(
    1, 14
)
_HEAD = b"\0asm\1\0\0\0"


@dataclass(frozen=True, slots=True)
class Section:
    """A section. `size` is its declared size if that is wrong."""

    id: int
    content: bytes
    size: bytes = b""


def split(wasm: bytes) -> list[Section]:
    """Returns the sections up to the first malformed one and drops the rest."""
    sections = []
    reader = WasmReader(wasm, min(8, len(wasm)))
    try:
        while reader.pos < reader.end:
            section_id, length = reader.byte(), reader.uint()
            start = reader.pos
            reader.skip(length)
            sections.append(Section(section_id, wasm[start : reader.pos]))
    except ModuleError:
        pass
    return sections


def join(sections: list[Section]) -> bytes:
    """Returns a module of these sections."""
    parts = [bytes([s.id]) + (s.size or leb(len(s.content))) + s.content for s in sections]
    return _HEAD + b"".join(parts)


def entries_of(section: Section) -> list[bytes] | None:
    """Returns the entries of a section, or None if it has no entries or is malformed."""
    skip = _SKIP.get(section.id)
    if skip is None:
        return None
    reader, found = WasmReader(section.content), []
    try:
        for _ in range(reader.count("entries")):
            start = reader.pos
            skip(reader)
            found.append(section.content[start : reader.pos])
    except ModuleError:
        return None
    return found if reader.pos == reader.end else None


def of_entries(section_id: int, entries: list[bytes]) -> Section:
    """Returns a section of these entries."""
    return Section(section_id, leb(len(entries)) + b"".join(entries))


def _import(reader: WasmReader) -> None:
    reader.skip(reader.uint())
    reader.skip(reader.uint())
    match reader.byte():
        case 0:
            reader.uint()
        case 1:
            reader.extent(reader.value_type())
        case 2:
            reader.extent()
        case 3:
            reader.global_type()
        case _:
            reader.byte()
            reader.uint()


def _export(reader: WasmReader) -> None:
    reader.skip(reader.uint())
    reader.byte()
    reader.uint()


def _global(reader: WasmReader) -> None:
    reader.global_type()
    reader.skip_const_expr()


def _data(reader: WasmReader) -> None:
    flags = reader.uint()
    if flags == 2:
        reader.uint()
    if flags != 1:
        reader.skip_const_expr()
    reader.skip(reader.uint())


def _body(reader: WasmReader) -> None:
    reader.skip(reader.uint())


def _tag(reader: WasmReader) -> None:
    reader.byte()
    reader.uint()


_SKIP: dict[int, Callable[[WasmReader], object]] = {
    TYPE: WasmReader.func_type,
    IMPORT: _import,
    FUNCTION: WasmReader.uint,
    TABLE: lambda reader: reader.extent(reader.value_type()),
    MEMORY: WasmReader.extent,
    GLOBAL: _global,
    EXPORT: _export,
    CODE: _body,
    DATA: _data,
    TAG: _tag,
}
