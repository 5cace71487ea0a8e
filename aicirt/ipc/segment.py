"""One shared-memory segment between a client and a worker."""

from __future__ import annotations

import contextlib
import mmap
import os

import posix_ipc

from aicirt.errors import ProtocolError, SpaceError
from aicirt.ipc import names
from aicirt.ipc.layout import Layout
from aicirt.ipc.ring import HEADER_BYTES, Ring
from aicirt.shortage import describe


class Segment:
    """The mapped segment with its two rings; rows are read and written by their offsets."""

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
        """A new zeroed segment, its memory reserved, accessible to this user only.

        Raises SpaceError if /dev/shm has too little room: without the reservation a
        write to a page that cannot be had would kill the engine with SIGBUS.
        """
        name = names.fresh_name()
        try:
            shared = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=layout.total)
        except (OSError, posix_ipc.Error) as error:
            raise SpaceError(f"no shared memory can be made in /dev/shm: {describe(error)}") from error
        try:
            try:
                os.posix_fallocate(shared.fd, 0, layout.total)
            except OSError as error:
                raise SpaceError(
                    f"/dev/shm has no room for {layout.total / 2**20:.1f} MiB ({error.strerror}); enlarge it "
                    "(containers: --shm-size) or ask for fewer rows",
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
        """An existing one that is open. Raises ProtocolError if it is of another size."""
        size = os.fstat(fd).st_size
        if size != layout.total:
            raise ProtocolError(f"a segment of {size} bytes, {layout.total} expected")
        return cls(mmap.mmap(fd, layout.total), "", layout, owner=False)

    def unlink(self) -> None:
        """Removes the name; both sides keep their map."""
        names.unlink_shared_memory(self.name)

    def close(self) -> None:
        """Unmaps; removes the name if this process made it.

        Arrays that still look into the segment keep the map alive until they are gone.
        """
        self.to_worker.release()
        self.to_client.release()
        with contextlib.suppress(BufferError):  # a view is still held by the engine: unmapped when it goes
            self.memory.release()
            self._map.close()
        if self._owner:
            self.unlink()
