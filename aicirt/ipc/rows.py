"""Mask rows in a segment: given out by the worker, given back by the client.

A row that was given out is not written again until the client has released it, so a
late result can never reach a row that is being read. The generation of a row is odd
while it is out; it goes with the row's number through both messages, so a release
that does not fit (twice, or of a row that was never out) is refused.
"""

from __future__ import annotations

import ctypes

from aicirt.errors import ProtocolError, SpaceError
from aicirt.ipc.layout import Layout


class RowPool:
    """The worker's side of one kind of row."""

    __slots__ = ("_address", "_free", "_kind", "_private", "_published", "_stride")

    def __init__(self, memory: memoryview, layout: Layout, *, dense: bool) -> None:
        count = layout.num_dense if dense else layout.num_rows
        first = layout.num_rows if dense else 0
        start = layout.generations + 4 * first
        self._published = memory[start : start + 4 * count].cast("I")
        self._private = [0] * count  # what is published is for the client to check, never read back
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory)) if count else 0
        self._address = base + (layout.dense if dense else layout.rows)
        self._stride = layout.dense_bytes if dense else layout.row_bytes
        self._free = list(range(count - 1, -1, -1))
        self._kind = "dense" if dense else "mask"

    def take(self) -> tuple[int, int, int]:
        """A free row: (number, generation, address to write to). Raises SpaceError if none is left."""
        if not self._free:
            raise SpaceError(
                f"all {len(self._private)} {self._kind} rows of this client are in use; release rows "
                "or ask for more when attaching"
            )
        row = self._free.pop()
        generation = self._advance(row)
        return row, generation, self._address + row * self._stride

    def give_back(self, row: int, generation: int) -> None:
        """Raises ProtocolError if that row is not out under that generation."""
        if not 0 <= row < len(self._private):
            raise ProtocolError(f"there is no {self._kind} row {row}")
        if self._private[row] != generation or not generation & 1:
            raise ProtocolError(f"{self._kind} row {row} is not out under generation {generation}")
        self._advance(row)
        self._free.append(row)

    @property
    def free(self) -> int:
        """Rows that can be taken."""
        return len(self._free)

    def release(self) -> None:
        """Lets go of the memory so that its map can be closed."""
        self._published.release()

    def _advance(self, row: int) -> int:
        generation = (self._private[row] + 1) & 0xFFFFFFFF
        self._private[row] = self._published[row] = generation
        return generation
