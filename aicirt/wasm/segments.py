"""What each new instance of a module would have to be filled with.

Memory that is initialised with plain data is mapped from the compiled module, and functions are put into
tables when they are first looked at. What cannot be prepared like this is done again for each start and each
fork, at the cost of everybody, in a part that no time limit ends: such modules are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicirt.wasm.inspect import ModuleShape
from aicirt.wasm.limits import Limits
from aicirt.wasm.reader import Reader

_ELEMENT, _DATA, _TAG = 9, 11, 13
_COUNTED = {_ELEMENT: "element segments", _DATA: "data segments", _TAG: "tags"}
#: data that lies over more than this is copied into each instance, piece by piece, 30 ms for 16 MiB:
#: wasmtime maps what is dense or not longer than this
_DENSE_BYTES = 16 << 20
_CONST, _END = 0x41, 0x0B


def look(wasm: bytes, shape: ModuleShape, limits: Limits) -> Iterator[str]:
    """Reasons to refuse a module. Raises `ModuleError` if a segment is malformed."""
    few = True
    for section_id, what in _COUNTED.items():
        section = shape.section(section_id)
        if section is None:
            continue
        count = Reader(wasm, section.start, section.end, what).count(what)
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
    reader = Reader(wasm, section.start, section.end, "data section")
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
            f"its data segments lie over {last - (first or 0)} bytes of memory, more than the limit of "
            f"{_DENSE_BYTES}: fill large tables in aici_init"
        )


def _elements(wasm: bytes, shape: ModuleShape, limits: Limits) -> Iterator[str]:
    section = shape.section(_ELEMENT)
    if section is None:
        return
    reader = Reader(wasm, section.start, section.end, "element section")
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
            yield (
                "its element segments fill more table entries than the limit of "
                f"{limits.table_elements} that there may be"
            )
            return
        for _ in range(count):
            if flags & 4:
                reader.skip_const_expr()
            else:
                reader.skip_leb()


def _offset(reader: Reader) -> int | None:
    """The address of an active segment; None if it is not a plain number."""
    if reader.byte() != _CONST:
        return None
    value = reader.sint()
    return value & 0xFFFFFFFF if reader.byte() == _END else None


def _computed(what: str, number: int) -> str:
    return (
        f"the place of its {what} segment {number} is computed by each instance; a number is needed: "
        "compile without -fPIC and -mextended-const"
    )
