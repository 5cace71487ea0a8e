"""A bounds-checked reader of the WebAssembly binary format and of a module's structure."""

from __future__ import annotations

from dataclasses import dataclass, field

from aicirt.contract.abi import FuncType
from aicirt.contract.errors import ModuleError

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


class WasmReader:
    """A bounds-checked reader; every failure is a `ModuleError` with the byte offset."""

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
        """Reads an unsigned LEB128 number of at most `bits` bits."""
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
        """Reads a signed LEB128 number of at most 32 bits."""
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
        """Reads the length of a vector; raises if the rest cannot hold that many entries of one byte."""
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


MAGIC = b"\0asm"
KINDS = ("function", "table", "memory", "global", "tag")
SECTION_NAMES = (
    "custom",
    "type",
    "import",
    "function",
    "table",
    "memory",
    "global",
    "export",
    "start",
    "element",
    "code",
    "data",
    "data count",
    "tag",
)
#: compilers write about 20; millions of empty sections would cost seconds
_MAX_SECTIONS = 1000
#: types whose values can be copied from one instance to another
NUMERIC = frozenset({"i32", "i64", "f32", "f64", "v128"})


ExternType = FuncType | Extent | GlobalType


@dataclass(frozen=True, slots=True)
class Import:
    module: str
    name: str
    kind: str
    type: ExternType


@dataclass(frozen=True, slots=True)
class Export:
    name: str
    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class Section:
    id: int
    #: offsets in the file: the first content byte, and the byte after the last
    start: int
    end: int


@dataclass(slots=True)
class ModuleShape:
    """The structure of a module. Index spaces start with the imported items."""

    size: int
    sections: list[Section] = field(default_factory=list)
    types: list[FuncType] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    functions: list[FuncType] = field(default_factory=list)
    tables: list[Extent] = field(default_factory=list)
    memories: list[Extent] = field(default_factory=list)
    globals: list[GlobalType] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)
    start: int | None = None
    #: (first byte, byte after the last) of each body, locals included
    bodies: list[tuple[int, int]] = field(default_factory=list)

    @property
    def imported_functions(self) -> int:
        return sum(1 for i in self.imports if i.kind == "function")

    def section(self, section_id: int) -> Section | None:
        return next((s for s in self.sections if s.id == section_id), None)

    def export(self, name: str, kind: str) -> Export | None:
        return next((e for e in self.exports if e.name == name and e.kind == kind), None)


def inspect(wasm: bytes) -> ModuleShape:
    """Decodes the structure of `wasm`.

    Raises `ModuleError`, and no other exception, if `wasm` is not a well-formed core module. Syntax errors
    have their place in ``detail["offset"]``.
    """
    if wasm[:4] != MAGIC:
        hint = " (text format: convert it with wat2wasm)" if wasm.lstrip()[:7] == b"(module" else ""
        raise ModuleError(f"not WebAssembly: the file does not start with \\0asm{hint}", offset=0)
    if len(wasm) < 8:
        raise ModuleError("malformed WebAssembly at byte 4: the file is truncated", offset=4)
    version, layer = int.from_bytes(wasm[4:6], "little"), int.from_bytes(wasm[6:8], "little")
    if layer == 1:
        raise ModuleError(
            "this is a WebAssembly component, not a core module; build for wasm32-wasi (preview 1), "
            "without componentizing",
            offset=4,
        )
    if (version, layer) != (1, 0):
        raise ModuleError(f"unknown WebAssembly version {version}, layer {layer}", offset=4)
    shape = ModuleShape(size=len(wasm))
    outer = WasmReader(wasm, 8)
    while outer.pos < outer.end:
        at, section_id = outer.pos, outer.byte()
        if len(shape.sections) == _MAX_SECTIONS:
            raise outer.fail(f"more than {_MAX_SECTIONS} sections", at)
        if section_id >= len(SECTION_NAMES):
            raise outer.fail(f"unknown section {section_id}", at)
        length = outer.uint()
        start = outer.pos
        outer.where = f"{SECTION_NAMES[section_id]} section"
        outer.skip(length)
        outer.where = "module"
        if section_id and shape.section(section_id):
            raise outer.fail(f"second {SECTION_NAMES[section_id]} section", at)
        shape.sections.append(Section(section_id, start, outer.pos))
        reader = WasmReader(wasm, start, outer.pos, f"{SECTION_NAMES[section_id]} section")
        decode = _DECODERS.get(section_id)
        if section_id == 0:
            reader.name()  # its content is not read
        elif decode:
            decode(reader, shape)
            if reader.pos != reader.end:
                raise reader.fail("bytes left over at the end of the section")
    _check_indices(shape)
    return shape


def _types(r: WasmReader, shape: ModuleShape) -> None:
    shape.types = [r.func_type() for _ in range(r.count("types"))]


def _type(r: WasmReader, shape: ModuleShape) -> FuncType:
    at, index = r.pos, r.uint()
    if index >= len(shape.types):
        raise r.fail(f"type {index} does not exist", at)
    return shape.types[index]


def _imports(r: WasmReader, shape: ModuleShape) -> None:
    for _ in range(r.count("imports")):
        module, name = r.name(), r.name()
        at, kind = r.pos, r.byte()
        found: ExternType
        if kind == 0:
            found = _type(r, shape)
            shape.functions.append(found)
        elif kind == 1:
            found = r.extent(r.value_type())
            shape.tables.append(found)
        elif kind == 2:
            found = r.extent()
            shape.memories.append(found)
        elif kind == 3:
            found = r.global_type()
            shape.globals.append(found)
        elif kind == 4:
            r.byte()
            found = _type(r, shape)
        else:
            raise r.fail(f"unknown import kind {kind}", at)
        shape.imports.append(Import(module, name, KINDS[kind], found))


def _functions(r: WasmReader, shape: ModuleShape) -> None:
    shape.functions += [_type(r, shape) for _ in range(r.count("functions"))]


def _tables(r: WasmReader, shape: ModuleShape) -> None:
    for _ in range(r.count("tables")):
        if r.pos < r.end and r.data[r.pos] == 0x40:
            r.skip(2)
            shape.tables.append(r.extent(r.value_type()))
            r.skip_const_expr()
        else:
            shape.tables.append(r.extent(r.value_type()))


def _memories(r: WasmReader, shape: ModuleShape) -> None:
    shape.memories += [r.extent() for _ in range(r.count("memories"))]


def _globals(r: WasmReader, shape: ModuleShape) -> None:
    for _ in range(r.count("globals")):
        shape.globals.append(r.global_type())
        r.skip_const_expr()


def _exports(r: WasmReader, shape: ModuleShape) -> None:
    for _ in range(r.count("exports")):
        name = r.name()
        at, kind = r.pos, r.byte()
        if kind >= len(KINDS):
            raise r.fail(f"unknown export kind {kind}", at)
        shape.exports.append(Export(name, KINDS[kind], r.uint()))


def _start(r: WasmReader, shape: ModuleShape) -> None:
    shape.start = r.uint()


def _code(r: WasmReader, shape: ModuleShape) -> None:
    for _ in range(r.count("function bodies")):
        size = r.uint()
        start = r.pos
        r.skip(size)
        shape.bodies.append((start, r.pos))


_DECODERS = {
    1: _types,
    2: _imports,
    3: _functions,
    4: _tables,
    5: _memories,
    6: _globals,
    7: _exports,
    8: _start,
    10: _code,
}


def _check_indices(shape: ModuleShape) -> None:
    spaces = {
        "function": len(shape.functions),
        "table": len(shape.tables),
        "memory": len(shape.memories),
        "global": len(shape.globals),
    }
    for export in shape.exports:
        if export.index >= spaces.get(export.kind, export.index + 1):
            raise ModuleError(f"export {export.name!r}: {export.kind} {export.index} does not exist")
    if shape.start is not None:
        if shape.start >= len(shape.functions):
            raise ModuleError(f"start function {shape.start} does not exist")
        # the compiler would accept the export that `rewrite` adds for it, and calls do not check its type
        kind = shape.functions[shape.start]
        if kind != FuncType((), ()):
            raise ModuleError(f"start function {shape.start} has type {kind}, expected () -> ()")
    local = len(shape.functions) - shape.imported_functions
    if local != len(shape.bodies):
        raise ModuleError(f"{local} functions are declared, {len(shape.bodies)} have bodies")
