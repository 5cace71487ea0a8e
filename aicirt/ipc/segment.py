"""The shared-memory segment of one (client, worker) pair: its layout and its mask rows."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import posix_ipc

from aicirt.contract.errors import ProtocolError, SpaceError
from aicirt.ipc import names
from aicirt.ipc.ring import HEADER_BYTES, Ring
from aicirt.system.shortage import describe

_LINE = 64
#: the largest generation
_LAST = 0xFFFFFFFF


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
        if not 0 <= self.num_dense <= 1 << 12:
            raise ProtocolError(f"{self.num_dense} dense rows: between 0 and 4096 are allowed")
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
    def generations(self) -> int:
        """Offset of the generations: a uint32 per row, dense rows last; odd while the row is in use."""
        return 2 * (HEADER_BYTES + self.ring_bytes)

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
    """The mapped segment with its two rings; rows are accessed by their offsets."""

    __slots__ = ("_map", "_owner", "layout", "memory", "name", "to_client", "to_worker")

    def __init__(self, mapped: mmap.mmap, name: str, layout: Layout, owner: bool) -> None:
        self._map = mapped
        self._owner = owner
        self.name = name
        self.layout = layout
        self.memory = memoryview(mapped)
        ring_total = HEADER_BYTES + layout.ring_bytes
        self.to_worker = Ring(self.memory[layout.to_worker : layout.to_worker + ring_total])
        self.to_client = Ring(self.memory[layout.to_client : layout.to_client + ring_total])

    @classmethod
    def create(cls, layout: Layout) -> Segment:
        """Creates a zeroed segment with reserved memory, accessible to this user only.

        Raises SpaceError if /dev/shm has too little room. Without the reservation, a
        write to a page that cannot be allocated would kill the engine with SIGBUS.
        """
        try:
            name = names.fresh_name()
            shared = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=layout.total)
        except (OSError, posix_ipc.Error) as error:
            raise SpaceError(f"cannot create shared memory in /dev/shm: {describe(error)}") from error
        try:
            try:
                os.posix_fallocate(shared.fd, 0, layout.total)
            except OSError as error:
                raise SpaceError(
                    f"/dev/shm has no room for {layout.total / 2**20:.1f} MiB ({error.strerror}); enlarge it "
                    "(in a container, --shm-size) or request fewer rows",
                    bytes=layout.total,
                ) from error
            try:
                mapped = mmap.mmap(shared.fd, layout.total)
            except OSError as error:
                raise SpaceError(f"shared memory cannot be mapped: {describe(error)}") from error
        except BaseException:
            names.unlink_shared_memory(name)
            raise
        finally:
            shared.close_fd()
        return cls(mapped, name, layout, owner=True)

    @classmethod
    def of_file(cls, fd: int, layout: Layout) -> Segment:
        """Maps an existing segment from its open file. Raises ProtocolError if the size differs."""
        size = os.fstat(fd).st_size
        if size != layout.total:
            raise ProtocolError(f"the segment has {size} bytes; expected {layout.total}")
        return cls(mmap.mmap(fd, layout.total), "", layout, owner=False)

    def unlink(self) -> None:
        """Removes the name; both sides keep their mappings."""
        names.unlink_shared_memory(self.name)

    def close(self) -> None:
        """Unmaps the segment; removes the name if this process created it.

        Arrays that still refer to the segment keep the mapping alive until they are gone.
        """
        self.to_worker.release()
        self.to_client.release()
        with contextlib.suppress(BufferError):  # the engine still holds a view: unmapped when it is freed
            self.memory.release()
            self._map.close()
        if self._owner:
            self.unlink()


class RowPool:
    """The worker's allocator for one kind of row."""

    __slots__ = ("_first", "_free", "_kind", "_memory", "_private", "_published", "_stride", "_views")

    def __init__(self, memory: memoryview, layout: Layout, *, dense: bool) -> None:
        count = layout.num_dense if dense else layout.num_rows
        first = layout.num_rows if dense else 0
        start = layout.generations + 4 * first
        self._published = memory[start : start + 4 * count].cast("I")
        self._private = [0] * count  # the published copy is for the client's checks and is never read back
        self._memory = memory
        self._first = layout.dense if dense else layout.rows
        self._stride = layout.dense_bytes if dense else layout.row_bytes
        #: each row's bytes, from its first use on
        self._views: list[memoryview | None] = [None] * count
        self._free = list(range(count - 1, -1, -1))
        self._kind = "dense" if dense else "mask"

    def take(self) -> tuple[int, int, memoryview]:
        """Takes a free row; returns (number, generation, bytes to write).

        Raises SpaceError if none is left.
        """
        private = self._private
        try:
            row = self._free.pop()
        except IndexError:
            raise SpaceError(
                f"all {len(private)} {self._kind} rows of this client are in use; release rows, "
                "or request more when you attach"
            ) from None
        private[row] = self._published[row] = generation = private[row] + 1 & _LAST
        return row, generation, self._views[row] or self._view(row)

    def _view(self, row: int) -> memoryview:
        start = self._first + row * self._stride
        view = self._views[row] = self._memory[start : start + self._stride]
        return view

    def give_back(self, numbers: Sequence[int]) -> None:
        """Frees rows; `numbers` is [row, generation, ...].

        Raises ProtocolError, or ValueError for an odd number of them, if a row is not in use under that
        generation.
        """
        private, published, free, count = self._private, self._published, self._free, len(self._private)
        pairs = iter(numbers)
        for row, generation in zip(pairs, pairs, strict=True):
            if not 0 <= row < count:
                raise ProtocolError(f"there is no {self._kind} row {row}")
            if private[row] != generation or not generation & 1:
                raise ProtocolError(f"{self._kind} row {row} is not in use under generation {generation}")
            private[row] = published[row] = generation + 1 & _LAST
            free.append(row)

    @property
    def free(self) -> int:
        """Number of rows that can be taken."""
        return len(self._free)

    def release(self) -> None:
        """Releases the memory so that its mapping can be closed."""
        self._published.release()
        self._views.clear()
