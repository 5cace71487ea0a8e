"""Where things lie in the shared-memory segment of one (client, worker) pair.

Both sides compute the same `Layout` from a few numbers; neither believes numbers
found in the segment.

    | ring client -> worker | ring worker -> client | generations | rows | dense rows |
"""

from __future__ import annotations

from dataclasses import dataclass

from aicirt.errors import ProtocolError
from aicirt.ipc.ring import HEADER_BYTES

_LINE = 64


def _aligned(n: int, to: int = _LINE) -> int:
    return (n + to - 1) // to * to


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a segment. All derived offsets are bytes from its start."""

    #: number of token ids a mask has a bit for
    vocab_size: int
    #: mask rows: one per live sequence, and one more each while the next is being computed
    num_rows: int = 256
    #: rows of one float32 per token
    num_dense: int = 4
    #: bytes of each of the two rings; a message may be longer, it is split
    ring_bytes: int = 1 << 19

    def __post_init__(self) -> None:
        if not 1 <= self.vocab_size <= 1 << 22:
            raise ProtocolError(f"vocabulary of {self.vocab_size} tokens: between 1 and 4194304 are possible")
        if not 2 <= self.num_rows <= 1 << 16:
            raise ProtocolError(f"{self.num_rows} mask rows: between 2 and 65536 are possible")
        if not 0 <= self.num_dense <= 1 << 12:
            raise ProtocolError(f"{self.num_dense} dense rows: between 0 and 4096 are possible")
        if not 1 << 12 <= self.ring_bytes <= 1 << 28 or self.ring_bytes % _LINE:
            raise ProtocolError(f"ring of {self.ring_bytes} bytes: 4 KiB to 256 MiB, a multiple of 64")

    @property
    def mask_words(self) -> int:
        """32-bit words of a bitmask."""
        return (self.vocab_size + 31) // 32

    @property
    def row_bytes(self) -> int:
        """Distance of two rows."""
        return _aligned(self.mask_words * 4)

    @property
    def dense_bytes(self) -> int:
        """Distance of two dense rows."""
        return _aligned(self.vocab_size * 4)

    @property
    def to_worker(self) -> int:
        """Ring from the client to the worker."""
        return 0

    @property
    def to_client(self) -> int:
        """Ring from the worker to the client."""
        return HEADER_BYTES + self.ring_bytes

    @property
    def generations(self) -> int:
        """uint32 per row, dense rows after the others; odd while the row is given out."""
        return 2 * (HEADER_BYTES + self.ring_bytes)

    @property
    def rows(self) -> int:
        """num_rows x row_bytes."""
        return _aligned(self.generations + 4 * (self.num_rows + self.num_dense), 4096)

    @property
    def dense(self) -> int:
        """num_dense x dense_bytes."""
        return self.rows + self.num_rows * self.row_bytes

    @property
    def total(self) -> int:
        """Bytes of the segment."""
        return _aligned(self.dense + self.num_dense * self.dense_bytes, 4096)

    def to_wire(self) -> list[int]:
        """The four numbers, msgpack-able."""
        return [self.vocab_size, self.num_rows, self.num_dense, self.ring_bytes]

    @classmethod
    def from_wire(cls, wire: list[int]) -> Layout:
        """Raises ProtocolError if a number is out of range."""
        if not isinstance(wire, list) or len(wire) != 4 or not all(isinstance(n, int) for n in wire):
            raise ProtocolError(f"not a segment layout: {wire!r}")
        return cls(*wire)
