"""The shared-memory segment of one (client, worker) pair: its layout, rings and doorbell."""

from __future__ import annotations

import contextlib
import errno
import mmap
from dataclasses import dataclass

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.ipc.ring import HEADER_BYTES, Doorbell, Ring
from aicirt.system.files import Descriptor, create_shared, map_shared
from aicirt.system.shortage import describe

_LINE = 64
#: dense rows of a segment, and how many an owner has by default where all of them take memory
_MAX_DENSE, _EAGER_DENSE = 1 << 13, 32
#: MADV_POPULATE_WRITE
_POPULATE = 23


def _reserves_parts() -> bool:
    """Returns whether the kernel (Linux 5.14 and later) reserves parts of a mapping on request."""
    with mmap.mmap(-1, mmap.PAGESIZE) as probe, contextlib.suppress(OSError):
        probe.madvise(_POPULATE, 0, mmap.PAGESIZE)
        return True
    return False


#: whether dense rows take memory only from their first use on; otherwise a segment is reserved as a whole
LATE_ROWS = _reserves_parts()


def dense_rows_for(num_rows: int) -> int:
    """Returns how many dense rows an owner with so many mask rows has by default.

    That is one for each mask row, so that all sequences can have biases at the same time. Where they would
    all take memory, they are few.
    """
    return min(num_rows, _MAX_DENSE // 2 if LATE_ROWS else _EAGER_DENSE)


def reserve(memory: memoryview, start: int, length: int) -> None:
    """Reserves a part of a mapped segment: without, a write or a read could be killed. Raises SpaceError."""
    if not LATE_ROWS or not isinstance(memory.obj, mmap.mmap):
        return
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        memory.obj.madvise(_POPULATE, first, start + length - first)
    except OSError as error:
        raise SpaceError(
            f"no memory is left for a row of {length / 2**20:.1f} MiB with biases: {describe(error)}; free "
            "memory, or use fewer sequences with biases at a time",
            bytes=length,
        ) from error


def _aligned(n: int, to: int = _LINE) -> int:
    return (n + to - 1) // to * to


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a segment. Raises ProtocolError for invalid ones. Derived offsets are bytes from the start."""

    #: number of token ids, each of which has a bit in a mask
    vocab_size: int
    #: mask rows: one per live sequence, and another one per sequence while its next row is computed
    num_rows: int = 256
    #: dense rows: one float32 per token
    num_dense: int = 4
    #: bytes of each of the two rings; longer messages are split
    ring_bytes: int = 1 << 19

    def __post_init__(self) -> None:
        if not 1 <= self.vocab_size <= 1 << 22:
            raise ProtocolError(f"a segment for {self.vocab_size} tokens: between 1 and 4194304 are allowed")
        if not 2 <= self.num_rows <= 1 << 16:
            raise ProtocolError(f"{self.num_rows} mask rows: between 2 and 65536 are allowed")
        if not 0 <= self.num_dense <= _MAX_DENSE:
            raise ProtocolError(f"{self.num_dense} dense rows: between 0 and {_MAX_DENSE} are allowed")
        if not 1 << 12 <= self.ring_bytes <= 1 << 28 or self.ring_bytes % _LINE:
            raise ProtocolError(f"a ring of {self.ring_bytes} bytes: 4 KiB to 256 MiB, in multiples of 64")

    @property
    def mask_words(self) -> int:
        """Number of 32-bit words in a bitmask."""
        return (self.vocab_size + 31) // 32

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next."""
        return _aligned(self.mask_words * 4)

    @property
    def dense_bytes(self) -> int:
        """Bytes from one dense row to the next."""
        return _aligned(self.vocab_size * 4)

    @property
    def to_worker(self) -> int:
        """Offset of the ring from the client to the worker."""
        return 0

    @property
    def to_client(self) -> int:
        """Offset of the ring from the worker to the client."""
        return HEADER_BYTES + self.ring_bytes

    @property
    def bell(self) -> int:
        """Offset of the doorbell for which the client waits."""
        return 2 * (HEADER_BYTES + self.ring_bytes)

    @property
    def generations(self) -> int:
        """Offset of the generations: a uint32 per row, dense rows last; odd while the row is in use."""
        return self.bell + _LINE

    @property
    def rows(self) -> int:
        """Offset of the mask rows: num_rows x row_bytes."""
        return _aligned(self.generations + 4 * (self.num_rows + self.num_dense), 4096)

    @property
    def dense(self) -> int:
        """Offset of the dense rows: num_dense x dense_bytes."""
        return self.rows + self.num_rows * self.row_bytes

    @property
    def total(self) -> int:
        """Size of the segment in bytes."""
        return _aligned(self.dense + self.num_dense * self.dense_bytes, 4096)

    def to_wire(self) -> list[int]:
        """Returns the four numbers, for msgpack."""
        return [self.vocab_size, self.num_rows, self.num_dense, self.ring_bytes]

    @classmethod
    def from_wire(cls, wire: list[int]) -> Layout:
        """Reads the result of `to_wire`. Raises ProtocolError if it is invalid."""
        if not isinstance(wire, list) or len(wire) != 4 or not all(isinstance(n, int) for n in wire):
            raise ProtocolError(f"not a segment layout: {wire!r}")
        return cls(*wire)


class Segment:
    """The mapped segment with its rings and the client's doorbell; rows are accessed by their offsets."""

    __slots__ = ("_map", "bell", "file", "layout", "memory", "to_client", "to_worker")

    def __init__(self, mapped: mmap.mmap, layout: Layout, file: Descriptor | None = None) -> None:
        self._map = mapped
        #: the memory file, for the peer; None in the peer, and once it is not needed any more
        self.file = file
        self.layout = layout
        self.memory = memoryview(mapped)
        ring_total = HEADER_BYTES + layout.ring_bytes
        self.to_worker = Ring(self.memory[layout.to_worker : layout.to_worker + ring_total])
        self.to_client = Ring(self.memory[layout.to_client : layout.to_client + ring_total])
        self.bell = Doorbell(mapped, layout.bell)

    @classmethod
    def create(cls, layout: Layout) -> Segment:
        """Creates a zeroed segment in a sealed memory file. Raises SpaceError.

        The memory of a dense row is reserved at its first use (`reserve`) if `LATE_ROWS` is set.
        """
        try:
            file = create_shared("aici-segment", layout.total, layout.dense if LATE_ROWS else layout.total)
            return cls(mmap.mmap(file.fd, layout.total), layout, file)
        except OSError as error:
            problem = error.strerror if error.errno == errno.ENOSPC else describe(error)
            raise SpaceError(
                f"cannot create {layout.total / 2**20:.1f} MiB of shared memory: {problem}; free memory, or "
                "request fewer rows",
                bytes=layout.total,
            ) from error

    @classmethod
    def of_file(cls, fd: int, layout: Layout) -> Segment:
        """Maps an existing segment. Raises ProtocolError if its size is another one, or could change."""
        return cls(map_shared(fd, layout.total, "segment"), layout)

    def close(self) -> None:
        """Unmaps the segment.

        Arrays that still refer to the segment keep the mapping alive until they are gone.
        """
        self.to_worker.release()
        self.to_client.release()
        self.bell.close()
        with contextlib.suppress(BufferError):  # the engine still holds a view: unmapped when it is freed
            self.memory.release()
            self._map.close()
        self.file = None
