"""Bounds-checked reading of the WebAssembly binary format: numbers, names, types."""

from __future__ import annotations

from dataclasses import dataclass

from aicirt.errors import ModuleError

_VALUE_TYPES = {
    0x7F: "i32",
    0x7E: "i64",
    0x7D: "f32",
    0x7C: "f64",
    0x7B: "v128",
    0x70: "funcref",
    0x6F: "externref",
    0x69: "exnref",
}


@dataclass(frozen=True, slots=True)
class FuncType:
    params: tuple[str, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"({', '.join(self.params)}) -> ({', '.join(self.results)})"


@dataclass(frozen=True, slots=True)
class Extent:
    """Limits of a memory (unit: pages) or table (unit: elements)."""

    minimum: int
    maximum: int | None
    is_64: bool = False
    shared: bool = False
    #: log2 of the page size; 16 unless the module has custom page sizes
    page_log2: int = 16
    #: tables only
    element: str = ""


@dataclass(frozen=True, slots=True)
class GlobalType:
    value: str
    mutable: bool


def leb(value: int) -> bytes:
    """Encodes an unsigned number as LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Bounds-checked reading; every failure is a `ModuleError` with the byte offset."""

    __slots__ = ("data", "end", "pos", "where")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None, where: str = "module") -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end is None else end
        self.where = where

    def fail(self, what: str, offset: int | None = None) -> ModuleError:
        at = self.pos if offset is None else offset
        return ModuleError(f"malformed WebAssembly at byte {at} ({self.where}): {what}", offset=at)

    def byte(self) -> int:
        if self.pos >= self.end:
            raise self.fail("unexpected end, the file is truncated or damaged")
        value = self.data[self.pos]
        self.pos += 1
        return value

    def uint(self, bits: int = 32) -> int:
        """Unsigned LEB128."""
        start, value, shift = self.pos, 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >> bits:
                    raise self.fail(f"number does not fit in {bits} bits", start)
                return value
            if shift >= bits + 6:
                raise self.fail("number is encoded in too many bytes", start)

    def sint(self) -> int:
        """Signed LEB128 of at most 32 bits."""
        start, value, shift = self.pos, 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if byte & 0x40 else value
            if shift >= 35:
                raise self.fail("number is encoded in too many bytes", start)

    def skip_leb(self) -> None:
        start = self.pos
        while self.byte() >= 0x80:
            if self.pos - start >= 10:
                raise self.fail("number is encoded in too many bytes", start)

    def skip(self, count: int) -> None:
        if count > self.end - self.pos:
            raise self.fail("unexpected end, the file is truncated or damaged")
        self.pos += count

    def count(self, what: str) -> int:
        """Length of a vector; each entry takes at least a byte, so a huge one is an error now."""
        start, value = self.pos, self.uint()
        if value > self.end - self.pos:
            raise self.fail(f"{value} {what} do not fit in the section", start)
        return value

    def name(self) -> str:
        start, length = self.pos, self.uint()
        self.skip(length)
        try:
            return self.data[self.pos - length : self.pos].decode()
        except UnicodeDecodeError:
            raise self.fail("name is not UTF-8", start) from None

    def value_type(self) -> str:
        at, code = self.pos, self.byte()
        if code in (0x63, 0x64):
            self.skip_leb()
            return "ref"
        if code not in _VALUE_TYPES:
            raise self.fail(f"unknown value type 0x{code:02x}", at)
        return _VALUE_TYPES[code]

    def func_type(self) -> FuncType:
        at, form = self.pos, self.byte()
        if form in (0x4E, 0x4F, 0x50, 0x5E, 0x5F):
            raise self.fail("garbage-collected types are not supported", at)
        if form != 0x60:
            raise self.fail(f"unknown type form 0x{form:02x}", at)
        params = tuple(self.value_type() for _ in range(self.count("parameters")))
        return FuncType(params, tuple(self.value_type() for _ in range(self.count("results"))))

    def extent(self, element: str = "") -> Extent:
        at, flags = self.pos, self.byte()
        if flags & ~0x0F:
            raise self.fail(f"unknown limits flags 0x{flags:02x}", at)
        bits = 64 if flags & 4 else 32
        minimum = self.uint(bits)
        maximum = self.uint(bits) if flags & 1 else None
        page_log2 = self.uint() if flags & 8 else 16
        return Extent(minimum, maximum, bool(flags & 4), bool(flags & 2), page_log2, element)

    def global_type(self) -> GlobalType:
        value = self.value_type()
        at, mutable = self.pos, self.byte()
        if mutable > 1:
            raise self.fail(f"unknown global flags 0x{mutable:02x}", at)
        return GlobalType(value, bool(mutable))

    def skip_const_expr(self) -> None:
        while True:
            at, op = self.pos, self.byte()
            if op == 0x0B:
                return
            if op in (0x41, 0x42, 0x23, 0xD0, 0xD2):
                self.skip_leb()
            elif op == 0x43:
                self.skip(4)
            elif op == 0x44:
                self.skip(8)
            elif op == 0xFD:
                self.skip_leb()
                self.skip(16)
            elif op not in (0x6A, 0x6B, 0x6C, 0x7C, 0x7D, 0x7E):
                raise self.fail(f"instruction 0x{op:02x} in a constant expression", at)
