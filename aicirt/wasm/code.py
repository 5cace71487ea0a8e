"""Find certain instructions in function bodies.

Decoding every instruction in Python would take a second per megabyte. One regular
expression describes runs of instructions that nobody asks about; only where it stops does
Python look. An instruction that is unknown here is an error, so nothing is overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aicirt.wasm.inspect import ModuleShape
from aicirt.wasm.reader import Reader

MEMORY_GROW = 0x40
#: instructions that work on any number of bytes at once, without a look at the time limit
BULK = {0xFC08: "memory.init", 0xFC0A: "memory.copy", 0xFC0B: "memory.fill"}
#: instructions that change a table: a clone would not see the change, because function
#: references cannot be copied from one instance to another
TABLE_MUTATORS = {
    0x26: "table.set",
    0xFC0C: "table.init",
    0xFC0E: "table.copy",
    0xFC0F: "table.grow",
    0xFC11: "table.fill",
}

_TWO_IMMEDIATES = (0xFC08, 0xFC0A, 0xFC0C, 0xFC0E)

_LEB = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_STRAIGHT = (
    # no immediate: parametric, comparison, arithmetic, conversion, sign extension, ref tests
    rb"[\x01\x1a\x1b\x45-\xc4\xd1\xd4]++",
    # one number: locals, globals, table.get, constants, ref.func
    rb"[\x20-\x25\x3f\x41\x42\xd2]" + _LEB,
    # two numbers: loads and stores (alignment, offset)
    rb"[\x28-\x3e]" + _LEB + _LEB,
    rb"\xd0" + _LEB,
    rb"\x43[\x00-\xff]{4}",
    rb"\x44[\x00-\xff]{8}",
    # saturating truncation, wide arithmetic; data.drop, elem.drop, table.size
    rb"\xfc[\x00-\x07\x13-\x16]",
    rb"\xfc[\x09\x0d\x10]" + _LEB,
    # vectors: loads and stores; v128.const and shuffle; lane access; lane loads and stores; the rest
    rb"\xfd[\x00-\x0b\x5c\x5d]" + _LEB + _LEB,
    rb"\xfd[\x0c\x0d][\x00-\xff]{16}",
    rb"\xfd[\x15-\x22][\x00-\xff]",
    rb"\xfd[\x54-\x5b]" + _LEB + _LEB + rb"[\x00-\xff]",
    rb"\xfd(?:[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff][\x01\x02])",
)
_CONTROL = (
    # no immediate: unreachable, else, throw_ref, end, return
    rb"[\x00\x05\x0a\x0b\x0f]",
    # one number: throw, branches, calls
    rb"[\x08\x0c\x0d\x10\x12\x14\x15\xd5\xd6]" + _LEB,
    # two numbers: indirect calls (type, table)
    rb"[\x11\x13]" + _LEB + _LEB,
    # block, loop, if: a type, which may be a reference with a heap type
    rb"[\x02-\x04](?:[\x63\x64])?" + _LEB,
)


def _runs(alternatives: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + b"|".join(alternatives) + b")*+", re.DOTALL)


#: whole instructions after each of which the next one comes
STRAIGHT = _runs(_STRAIGHT)
_ORDINARY = _runs(_STRAIGHT + _CONTROL)

_LEGACY = "is of the legacy exceptions: compile with -mllvm -wasm-use-legacy-eh=false"
_HINTS = {
    **dict.fromkeys((0x06, 0x07, 0x09, 0x18, 0x19), _LEGACY),
    0xFB: "is of garbage-collected types, which are not supported",
    0xFE: "is of threads, which are not supported: compile without -pthread and -matomics",
}


@dataclass(frozen=True, slots=True)
class Found:
    """An instruction outside the ordinary ones; prefixed opcodes are ``prefix << 8 | number``."""

    function: int
    opcode: int
    #: first byte, and the byte after the last
    start: int
    end: int


def scan(wasm: bytes, shape: ModuleShape) -> Iterator[Found]:
    """Every memory.grow and every instruction of `BULK` and `TABLE_MUTATORS`, in order.

    Raises `ModuleError` for malformed code and unknown instructions.
    """
    for function, reader in bodies(wasm, shape):
        yield from _scan_body(reader, function)


def bodies(wasm: bytes, shape: ModuleShape) -> Iterator[tuple[int, Reader]]:
    """Index of each function that has code, and a reader at its first instruction."""
    for function, (start, end) in enumerate(shape.bodies, shape.imported_functions):
        reader = Reader(wasm, start, end, f"function {function}")
        for _ in range(reader.count("groups of locals")):
            reader.uint()
            reader.value_type()
        yield function, reader


def _scan_body(reader: Reader, function: int) -> Iterator[Found]:
    data, end = reader.data, reader.end
    while True:
        match = _ORDINARY.match(data, reader.pos, end)
        reader.pos = match.end() if match else reader.pos
        if reader.pos == end:
            return
        start, opcode = reader.pos, reader.byte()
        if opcode in (0xFC, 0xFD):
            opcode = opcode << 8 | reader.uint()
        if skip_immediates(reader, opcode, start):
            yield Found(function, opcode, start, reader.pos)


def skip_immediates(reader: Reader, opcode: int, start: int) -> bool:
    """Moves behind an instruction that the expressions do not know; whether `scan` reports it.

    Raises `ModuleError` for an unknown one.
    """
    if opcode == MEMORY_GROW or opcode in TABLE_MUTATORS or opcode in BULK:
        for _ in range(2 if opcode in _TWO_IMMEDIATES else 1):
            reader.skip_leb()
        return True
    if opcode == 0x0E:  # br_table
        for _ in range(reader.count("branch targets") + 1):
            reader.skip_leb()
    elif opcode == 0x1C:  # select with types
        for _ in range(reader.count("types")):
            reader.value_type()
    elif opcode == 0x1F:  # try_table
        if reader.pos < reader.end and reader.data[reader.pos] in (0x63, 0x64):
            reader.byte()
        reader.skip_leb()
        for _ in range(reader.count("handlers")):
            for _ in range(2 if reader.byte() < 2 else 1):
                reader.skip_leb()
    else:
        prefix = opcode >> 8 if opcode > 0xFF else opcode
        hint = _HINTS.get(prefix, "is unknown or truncated")
        raise reader.fail(f"instruction 0x{opcode:02x} {hint}", start)
    return False
