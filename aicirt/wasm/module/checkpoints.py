"""Finds special instructions in function bodies, and places in straight code for time limit checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aicirt.wasm.module.reader import ModuleShape, WasmReader

MEMORY_GROW, MEMORY_INIT = 0x40, 0xFC08
#: instructions that process any number of bytes without a check of the time limit
BULK = {MEMORY_INIT: "memory.init", 0xFC0A: "memory.copy", 0xFC0B: "memory.fill"}
#: instructions that change a table. A clone would lose the change, because function references cannot be
#: copied from one instance to another
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
    rb"[\x02-\x04][\x63\x64]?+" + _LEB,
)
#: bytes of code that one match covers. It bounds what the matcher keeps for backtracking: about 120 bytes for
#: each instruction
_PIECE = 16384


def _runs(alternatives: tuple[bytes, ...]) -> re.Pattern[bytes]:
    # Not possessive: Python 3.11.0 to 3.11.4 match possessive groups wrongly. The result is the same,
    # because an instruction matches in one way only.
    return re.compile(b"(?:" + b"|".join(alternatives) + b")*", re.DOTALL)


#: matches whole instructions after each of which the next one runs
STRAIGHT = _runs(_STRAIGHT)
_ORDINARY = _runs(_STRAIGHT + _CONTROL)

_LEGACY = "needs legacy exceptions: compile with -mllvm -wasm-use-legacy-eh=false"
_HINTS = {
    **dict.fromkeys((0x06, 0x07, 0x09, 0x18, 0x19), _LEGACY),
    0xFB: "needs garbage-collected types, which are not supported",
    0xFE: "needs threads, which are not supported: compile without -pthread and -matomics",
}


@dataclass(frozen=True, slots=True)
class Found:
    """An instruction that `scan` reports; prefixed opcodes are ``prefix << 8 | number``."""

    function: int
    opcode: int
    #: offsets in the file: the first byte, and the byte after the last
    start: int
    end: int


def scan(wasm: bytes, shape: ModuleShape) -> Iterator[Found]:
    """Yields every memory.grow and every instruction of `BULK` and `TABLE_MUTATORS`, in order.

    Raises `ModuleError` for malformed code and unknown instructions.
    """
    for function, reader in bodies(wasm, shape):
        yield from _scan_body(reader, function)


def bodies(wasm: bytes, shape: ModuleShape) -> Iterator[tuple[int, WasmReader]]:
    """Yields the index of each function that has code, and a reader at its first instruction."""
    for function, (start, end) in enumerate(shape.bodies, shape.imported_functions):
        reader = WasmReader(wasm, start, end, f"function {function}")
        for _ in range(reader.count("groups of locals")):
            reader.uint()
            reader.value_type()
        yield function, reader


def _scan_body(reader: WasmReader, function: int) -> Iterator[Found]:
    data, end = reader.data, reader.end
    while True:
        match = _ORDINARY.match(data, reader.pos, min(end, reader.pos + _PIECE))
        if match and match.end() > reader.pos:
            reader.pos = match.end()
            continue
        if reader.pos == end:
            return
        start, opcode = reader.pos, reader.byte()
        if opcode in (0xFC, 0xFD):
            opcode = opcode << 8 | reader.uint()
        if skip_immediates(reader, opcode, start):
            yield Found(function, opcode, start, reader.pos)


def skip_immediates(reader: WasmReader, opcode: int, start: int) -> bool:
    """Moves past an instruction that no regular expression matches; returns whether `scan` reports it.

    Raises `ModuleError` if the instruction is unknown.
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


#: an empty loop: wasmtime checks the time limit at the start of loops
CHECKPOINT = b"\x03\x40\x0b"
#: bytes of code without a check. A load has 3 bytes and takes up to 0.1 us if it misses all caches: 0.15 ms
MAX_STRAIGHT = 4096
#: bytes of code after a call without a check. Two loads after each of the 16 000 calls that fit a stack: 3 ms
MAX_AFTER_CALL = 16

_BEHIND_CALL = MAX_STRAIGHT - MAX_AFTER_CALL
_UNREACHABLE, _BLOCK, _LOOP, _IF, _ELSE, _THROW, _THROW_REF = 0x00, 0x02, 0x03, 0x04, 0x05, 0x08, 0x0A
_END, _BR, _BR_IF, _BR_TABLE, _RETURN, _TRY_TABLE = 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x1F
_CALL, _CALL_INDIRECT, _RETURN_CALL, _RETURN_CALL_INDIRECT, _CALL_REF, _RETURN_CALL_REF = range(0x10, 0x16)
_BR_ON_NULL, _BR_ON_NON_NULL = 0xD5, 0xD6
_BLOCKS = frozenset({_BLOCK, _LOOP, _IF, _TRY_TABLE})
#: instructions after which the next one is not reached, with the number of their immediates
_ENDS = {_UNREACHABLE: 0, _RETURN: 0, _THROW: 1, _THROW_REF: 0}
_ENDS |= {_RETURN_CALL: 1, _RETURN_CALL_INDIRECT: 2, _RETURN_CALL_REF: 1}
_CONTROL_FLOW = (
    _BLOCKS | _ENDS.keys() | {_ELSE, _END, _BR, _BR_IF, _BR_TABLE, _CALL, _CALL_INDIRECT, _CALL_REF}
)
_CONTROL_FLOW |= {_BR_ON_NULL, _BR_ON_NON_NULL}


def checkpoints(wasm: bytes, shape: ModuleShape) -> Iterator[tuple[int, int]]:
    """Yields the function and the offset in the file of each place for a `CHECKPOINT`, in order.

    Raises `ModuleError` for malformed code.
    """
    imported = shape.imported_functions
    for function, reader in bodies(wasm, shape):
        if reader.end - reader.pos > MAX_AFTER_CALL:
            for at in _Body(reader, imported).offsets():
                yield function, at


class _Body:
    """A pass over the code of a function, which finds the places of its checkpoints."""

    __slots__ = ("_imported", "_otherwise", "_pending", "_reader")

    def __init__(self, reader: WasmReader, imported: int) -> None:
        self._reader = reader
        self._imported = imported
        #: for each open block, outermost first: the most bytes that have run on any branch to its end since a
        #: check; -1 for a loop, whose branches lead to its beginning
        self._pending = [0]
        #: the same for an if whose else has not been read yet; 0 for other blocks
        self._otherwise = [0]

    def offsets(self) -> Iterator[int]:
        """Yields the offsets of checkpoints."""
        reader = self._reader
        data, end, match_straight = reader.data, reader.end, STRAIGHT.match
        ran = 0
        while True:
            start = reader.pos
            match = match_straight(data, start, min(end, start + MAX_STRAIGHT - ran))
            if match:
                reader.pos = match.end()
                ran += reader.pos - start
            if reader.pos >= end:
                return
            opcode = data[reader.pos]
            if opcode in _CONTROL_FLOW:
                reader.pos += 1
                ran = self._control(opcode, ran)
            elif ran:  # the next instruction does not fit, or is rare
                yield reader.pos
                ran = 0
            else:
                ran = self._rare()

    def _control(self, opcode: int, ran: int) -> int:
        """Moves past a control instruction; returns the most bytes that can have run since a check."""
        reader = self._reader
        if opcode == _END:
            return self._end_block(ran)
        if opcode == _BR_IF:
            self._branch(reader.uint(), ran)
            return ran
        if opcode == _BR:
            self._branch(reader.uint(), ran)
            return 0
        if opcode == _CALL:
            return ran if reader.uint() < self._imported else _BEHIND_CALL
        if opcode in _BLOCKS:
            return self._block(opcode, ran)
        if opcode == _ELSE:
            self._branch(0, ran)
            ran, self._otherwise[-1] = self._otherwise[-1], 0
            return ran
        if opcode in _ENDS:
            for _ in range(_ENDS[opcode]):
                reader.skip_leb()
            return 0
        if opcode == _BR_TABLE:
            for _ in range(reader.count("branch targets") + 1):
                self._branch(reader.uint(), ran)
            return 0
        if opcode in (_BR_ON_NULL, _BR_ON_NON_NULL):
            self._branch(reader.uint(), ran)
            return ran
        for _ in range(2 if opcode == _CALL_INDIRECT else 1):
            reader.skip_leb()
        return max(ran, _BEHIND_CALL)  # the callee may be a host function

    def _end_block(self, ran: int) -> int:
        if not self._pending:
            raise self._reader.fail("code behind the end of the function")
        return max(ran, self._pending.pop(), self._otherwise.pop())

    def _block(self, opcode: int, ran: int) -> int:
        reader = self._reader
        if reader.pos < reader.end and reader.data[reader.pos] in (0x63, 0x64):
            reader.byte()
        reader.skip_leb()
        if opcode == _TRY_TABLE:  # an exception can come from any place in the block
            for _ in range(reader.count("handlers")):
                if reader.byte() < 2:
                    reader.skip_leb()
                self._branch(reader.uint(), MAX_STRAIGHT)
        self._pending.append(-1 if opcode == _LOOP else 0)
        self._otherwise.append(ran if opcode == _IF else 0)
        return 0 if opcode == _LOOP else ran

    def _branch(self, depth: int, ran: int) -> None:
        pending = self._pending
        if depth >= len(pending):
            raise self._reader.fail(f"a branch to depth {depth} of {len(pending)} blocks")
        place = -1 - depth
        if 0 <= pending[place] < ran:
            pending[place] = ran

    def _rare(self) -> int:
        """Moves past an instruction that `STRAIGHT` and `_control` do not handle.

        Returns the most bytes that can have run since a check.
        """
        reader = self._reader
        start, opcode = reader.pos, reader.byte()
        if opcode in (0xFC, 0xFD):
            opcode = opcode << 8 | reader.uint()
        skip_immediates(reader, opcode, start)
        # the rewriter replaces these by calls
        return _BEHIND_CALL if opcode == MEMORY_GROW or opcode in BULK else reader.pos - start
