"""Places in code where time limits must be looked at, besides those that wasmtime knows.

wasmtime looks where functions begin and loops repeat. Without more, a guest runs any amount of straight code
past its limit: 400 000 loads in a row take 100 ms. A checkpoint goes wherever more than `MOST_STRAIGHT` bytes
of code could run since the last look, on whatever path, and soon behind a call: when a deep recursion
returns, the code behind all of its calls runs without a function beginning.

Between two looks code runs forward only, so one pass is enough. It carries along the most that can have run
since the last look, through branches to the end of their block. Code behind a jump counts as if it could be
reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicirt.wasm.code import BULK, MEMORY_GROW, STRAIGHT, bodies, skip_immediates
from aicirt.wasm.inspect import ModuleShape
from aicirt.wasm.reader import Reader

#: an empty loop: wasmtime looks where it begins
CHECKPOINT = b"\x03\x40\x0b"
#: bytes of code. Three of them make a load, which takes up to 0.1 us if it misses all caches: 0.15 ms
MOST_STRAIGHT = 4096
#: bytes of code behind a call. Two loads behind each of the 16 000 calls that a stack has room for: 3 ms
MOST_BEHIND_CALL = 16

_BEHIND_CALL = MOST_STRAIGHT - MOST_BEHIND_CALL
_UNREACHABLE, _BLOCK, _LOOP, _IF, _ELSE, _THROW, _THROW_REF = 0x00, 0x02, 0x03, 0x04, 0x05, 0x08, 0x0A
_END, _BR, _BR_IF, _BR_TABLE, _RETURN, _TRY_TABLE = 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x1F
_CALL, _CALL_INDIRECT, _RETURN_CALL, _RETURN_CALL_INDIRECT, _CALL_REF, _RETURN_CALL_REF = range(0x10, 0x16)
_BR_ON_NULL, _BR_ON_NON_NULL = 0xD5, 0xD6
_BLOCKS = frozenset({_BLOCK, _LOOP, _IF, _TRY_TABLE})
#: instructions behind which the next one is not reached, with the number of their immediates
_ENDS = {_UNREACHABLE: 0, _RETURN: 0, _THROW: 1, _THROW_REF: 0}
_ENDS |= {_RETURN_CALL: 1, _RETURN_CALL_INDIRECT: 2, _RETURN_CALL_REF: 1}
_CONTROL = _BLOCKS | _ENDS.keys() | {_ELSE, _END, _BR, _BR_IF, _BR_TABLE, _CALL, _CALL_INDIRECT, _CALL_REF}
_CONTROL |= {_BR_ON_NULL, _BR_ON_NON_NULL}


def checkpoints(wasm: bytes, shape: ModuleShape) -> Iterator[tuple[int, int]]:
    """Yields the function and the offset in the file of each place for a `CHECKPOINT`, in order.

    Raises `ModuleError` for malformed code.
    """
    imported = shape.imported_functions
    for function, reader in bodies(wasm, shape):
        if reader.end - reader.pos > MOST_BEHIND_CALL:
            for at in _Body(reader, imported).offsets():
                yield function, at


class _Body:
    """One pass over the code of a function."""

    __slots__ = ("_imported", "_otherwise", "_pending", "_reader")

    def __init__(self, reader: Reader, imported: int) -> None:
        self._reader = reader
        self._imported = imported
        #: for each open block, the outermost first: the most bytes that have run when a branch leads to its
        #: end; -1 for a loop, whose branches lead to its beginning
        self._pending = [0]
        #: the same for the arm of an if that has not been seen yet; 0 for other blocks
        self._otherwise = [0]

    def offsets(self) -> Iterator[int]:
        """Yields the offsets of checkpoints."""
        reader = self._reader
        data, end, match_straight = reader.data, reader.end, STRAIGHT.match
        ran = 0
        while True:
            start = reader.pos
            match = match_straight(data, start, min(end, start + MOST_STRAIGHT - ran))
            if match:
                reader.pos = match.end()
                ran += reader.pos - start
            if reader.pos >= end:
                return
            opcode = data[reader.pos]
            if opcode in _CONTROL:
                reader.pos += 1
                ran = self._control(opcode, ran)
            elif ran:  # the next instruction does not fit, or is a rare one
                yield reader.pos
                ran = 0
            else:
                ran = self._rare()

    def _control(self, opcode: int, ran: int) -> int:
        """Moves behind an instruction that may go elsewhere; the most bytes that have run behind it."""
        reader = self._reader
        if opcode == _END:
            return self._end(ran)
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
        return max(ran, _BEHIND_CALL)  # what is called may be a function of the host

    def _end(self, ran: int) -> int:
        if not self._pending:
            raise self._reader.fail("code behind the end of the function")
        return max(ran, self._pending.pop(), self._otherwise.pop())

    def _block(self, opcode: int, ran: int) -> int:
        reader = self._reader
        if reader.pos < reader.end and reader.data[reader.pos] in (0x63, 0x64):
            reader.byte()
        reader.skip_leb()
        if opcode == _TRY_TABLE:  # an exception comes from anywhere
            for _ in range(reader.count("handlers")):
                if reader.byte() < 2:
                    reader.skip_leb()
                self._branch(reader.uint(), MOST_STRAIGHT)
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
        """Moves behind an instruction that neither `STRAIGHT` nor `_control` knows."""
        reader = self._reader
        start, opcode = reader.pos, reader.byte()
        if opcode in (0xFC, 0xFD):
            opcode = opcode << 8 | reader.uint()
        skip_immediates(reader, opcode, start)
        # the rewriter makes calls of these
        return _BEHIND_CALL if opcode == MEMORY_GROW or opcode in BULK else reader.pos - start
