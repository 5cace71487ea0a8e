"""Snapshots and forks: copy-on-write clones of guests.

A snapshot consists of a sealed memory file with the nonzero pages, the mutable globals, and the read-only
mappings. An instance made from a snapshot maps the file privately. A fork is an instance made from its
parent's base, plus the pages that the parent has changed since.

A clone has the tables of a fresh instance, because modules that change tables are refused. It also has the
data segments of a fresh instance: only memory.init can tell whether a segment was dropped.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import MemoryLimitError, ProtocolError, RuntimeFailure
from aicirt.settings import WASM_PAGE
from aicirt.system.files import Descriptor, check_sealed, sealed
from aicirt.wasm import raw
from aicirt.wasm.memory import PAGE, copy_runs, map_private, map_zeros, nonzero

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.wasm.program import Program
    from aicirt.wasm.spares import Shell

Runs = list[tuple[int, int]]

#: kinds of wasmtime_val_t that are plain numbers: i32, i64, f32, f64, v128. Other kinds are pointers.
_NUMBERS = range(5)
#: changed bytes up to which copying them (0.7 us per KiB) costs less than a new base (60 us and more)
_REBASE_BYTES = 256 << 10
_ZEROS = bytes(PAGE)


def read_globals(guest: Instance) -> bytes:
    """Returns all mutable globals as an array of wasmtime_val_t."""
    count = len(guest.globals)
    values = ctypes.create_string_buffer(max(1, count * raw.VAL_SIZE))
    address = ctypes.addressof(values)
    for i, handle in enumerate(guest.globals):
        raw.global_get(guest.context, handle, address + i * raw.VAL_SIZE)
    return values.raw[: count * raw.VAL_SIZE]


def write_globals(guest: Instance, values: bytes) -> None:
    """Restores the globals that `read_globals` has returned. Raises `RuntimeFailure` if one cannot be set."""
    buffer = (ctypes.c_char * len(values)).from_buffer_copy(values)
    address = ctypes.addressof(buffer)
    for i, handle in enumerate(guest.globals):
        error = raw.global_set(guest.context, handle, address + i * raw.VAL_SIZE)
        if error:
            raise RuntimeFailure(f"a global cannot be restored: {raw.take_error(error)}")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Image:
    """Contents of a memory from address 0 on; immutable, and shared by all guests that start from it."""

    file: Descriptor
    nbytes: int
    #: (offset, bytes) of the pages in the file; all others are zero
    runs: Runs
    #: bytes of those pages
    stored: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored", _nbytes(self.runs))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A shared read-only file in guest memory."""

    file: Descriptor
    address: int
    nbytes: int

    @property
    def pages(self) -> int:
        """Wasm pages that the mapping occupies."""
        return -(-self.nbytes // WASM_PAGE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a guest between two calls."""

    program: Program
    #: None = the memory of a fresh instance
    image: Image | None
    #: bytes of memory, mappings included
    size: int
    globals: bytes
    mappings: tuple[Mapping, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that only the snapshot takes, for a cache with a limit."""
        return self.image.stored if self.image else 0

    def restore(self, guest: Instance, shell: Shell | None = None) -> None:
        """Sets memory and globals of a new instance, or of one that has just adopted `shell`."""
        if self.size > guest.size:
            guest.grow((self.size - guest.size) // WASM_PAGE)
        if shell is None:
            self.map_into(guest)
        elif shell.image is not self.image:
            replace_memory(guest.base, shell.nbytes, self.mappings, self.image)
        guest.base_image = self.image
        write_globals(guest, self.globals)

    def map_into(self, guest: Instance) -> None:
        """Replaces the guest's memory by this one; the guest's must be at least as large."""
        if self.image:
            map_private(guest.base, self.image.nbytes, self.image.file.fd)
        for mapping in self.mappings:
            map_private(guest.base + mapping.address, _whole_pages(mapping.nbytes), mapping.file.fd)


def replace_memory(base: int, nbytes: int, mappings: tuple[Mapping, ...], image: Image | None) -> None:
    """Replaces memory, but not the mappings, by the contents of `image`, and by zeros up to `nbytes`.

    Raises `RuntimeFailure` if the kernel refuses.
    """
    filled = image.nbytes if image else 0
    start = 0
    for mapping in (*mappings, None):
        end = mapping.address if mapping else max(filled, nbytes)
        middle = max(start, min(end, filled))
        if image and start < middle:
            map_private(base + start, middle - start, image.file.fd, start)
        if middle < min(end, nbytes):
            map_zeros(base + middle, min(end, nbytes) - middle)
        if mapping:
            start = mapping.address + mapping.pages * WASM_PAGE


def same_mappings(these: tuple[Mapping, ...], others: tuple[Mapping, ...]) -> bool:
    """Returns whether two guests have the same files at the same addresses."""
    return these is others or (
        len(these) == len(others)
        and all(
            (one.address, one.nbytes) == (other.address, other.nbytes)
            and os.path.sameopenfile(one.file.fd, other.file.fd)
            for one, other in zip(these, others, strict=True)
        )
    )


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def take(guest: Instance, runs: Runs | None = None) -> Snapshot:
    """Takes a snapshot of `guest`, which stays unchanged. Raises `RuntimeFailure` if no memory is left.

    `runs`: what `changed` has returned since the guest ran; None = not known.
    """
    guest.check_idle()
    guest.refresh()
    return _take(guest, own_runs(guest, changed(guest) if runs is None else runs))


def grown(guest: Instance) -> int:
    """Returns the bytes that a snapshot of `guest` would have beyond those of its base."""
    guest.check_idle()
    guest.refresh()
    base = _base_runs(guest)
    own = [(address - guest.base, length) for address, length in own_runs(guest, changed(guest))]
    return _nbytes(_union(base, own)) - _nbytes(base)


def _take(guest: Instance, runs: Runs) -> Snapshot:
    own = [(address - guest.base, length) for address, length in runs]
    runs = _union(_base_runs(guest), _filled(guest, own))
    image = None
    if runs:
        size = runs[-1][0] + runs[-1][1]
        fd = sealed("aici-snapshot", size, [(guest.base + at, at, length) for at, length in runs])
        image = Image(Descriptor(fd), size, runs)
    return Snapshot(guest.program, image, guest.size, read_globals(guest), guest.mappings)


def fork(parent: Instance, count: int) -> list[Instance]:
    """Makes `count` guests in the state of `parent`.

    If the pages that the parent has changed outweigh those of its base, the parent gets a new base. That
    costs about as much as two forks, keeps repeated forks cheap, and lets the children share pages.
    """
    parent.check_idle()
    parent.refresh()
    runs = own_runs(parent, changed(parent))
    if _rebases(parent, _nbytes(runs)):
        state = _take(parent, runs)
        state.map_into(parent)
        parent.base_image = state.image
        runs = []
    else:
        state = Snapshot(
            parent.program, parent.base_image, parent.size, read_globals(parent), parent.mappings
        )
    children: list[Instance] = []
    try:
        for _ in range(count):
            child = type(parent)(parent.program, base=state)
            children.append(child)
            copy_runs(runs, child.base - parent.base)
            parent.forks += 1
            child.seed = _child_seed(parent.seed, parent.forks)
            child.owner, child.log, child.clock_ns = parent.owner, parent.log, parent.clock_ns
    except BaseException:
        for child in children:
            child.close()
        raise
    return children


def fork_bytes(parent: Instance, count: int) -> int:
    """Returns the bytes of memory that `fork` takes: a copy for each child, or a new base."""
    parent.check_idle()
    parent.refresh()
    nbytes = _nbytes(own_runs(parent, changed(parent)))
    return nbytes + _nbytes(_base_runs(parent)) if _rebases(parent, nbytes) else nbytes * count


def _rebases(parent: Instance, nbytes: int) -> bool:
    """Returns whether a fork makes a new base, when `nbytes` have changed since the parent's."""
    return nbytes > _REBASE_BYTES and nbytes > _nbytes(_base_runs(parent))


def _child_seed(seed: int, number: int) -> int:
    """Returns a child's seed: different from the parent's and from other children's, the same in each run."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def changed(guest: Instance) -> Runs:
    """Returns runs (address, bytes) of pages that differ from the guest's base and from its mappings."""
    return guest.engine.changes.changed(guest.base, guest.base + guest.size)


def own_runs(guest: Instance, runs: Runs) -> Runs:
    """Returns runs without the parts in mappings, where writes are not kept."""
    for mapping in guest.mappings:
        start = guest.base + mapping.address
        end = start + mapping.pages * WASM_PAGE
        parts = [(at, min(at + length, start)) for at, length in runs if at < start]
        parts += [(max(at, end), at + length) for at, length in runs if at + length > end]
        runs = [(at, stop - at) for at, stop in parts]
    return runs


def _base_runs(guest: Instance) -> Runs:
    """Returns runs (offset, bytes) of nonzero pages in the memory that the guest started from."""
    if guest.base_image:
        return guest.base_image.runs
    program = guest.program
    if program.initial_runs is None:
        fresh = type(guest)(program)
        try:
            runs = nonzero(fresh.base, fresh.size)
            program.initial_runs = [(address - fresh.base, length) for address, length in runs]
        finally:
            fresh.close()
    return program.initial_runs


def _filled(guest: Instance, runs: Runs) -> Runs:
    """Returns runs (offset, bytes) without pages of zeros, which a spare guest may have, too."""
    view = guest.view
    words = view.cast("Q")
    filled: Runs = []
    for at, length in runs:
        start = at
        for page in range(at, at + length, PAGE):
            # few other pages begin with zero
            if not words[page >> 3] and view[page : page + PAGE].tobytes() == _ZEROS:
                filled.append((start, page - start))
                start = page + PAGE
        filled.append((start, at + length - start))
    return [run for run in filled if run[1]]


def _nbytes(runs: Runs) -> int:
    return sum(length for _, length in runs)


def _union(first: Runs, second: Runs) -> Runs:
    """Returns the union of two lists of runs, sorted and merged."""
    merged: Runs = []
    for at, length in sorted(first + second):
        if merged and at <= merged[-1][0] + merged[-1][1]:
            last, have = merged[-1]
            merged[-1] = (last, max(have, at + length - last))
        else:
            merged.append((at, length))
    return merged


def map_readonly(guest: Instance, fd: int, nbytes: int) -> int:
    """Maps a sealed file into a guest; see `Instance.map_readonly`.

    The mapping is private and writable, not PROT_READ. Written pages become private copies. memory.fill and
    memory.copy write from wasmtime's own code, where a write to a read-only page kills the process instead
    of trapping. A write from a host function would kill it too.
    """
    guest.refresh()
    check_sealed(fd, nbytes)
    pages = -(-nbytes // WASM_PAGE)
    limit = guest.program.limits.shared_bytes
    if guest.shared_bytes + pages * WASM_PAGE > limit:
        raise MemoryLimitError(
            f"shared mappings exceed the limit of {limit} bytes (shared_bytes)", limit=limit
        )
    guest.shared_bytes += pages * WASM_PAGE
    guest.limit_memory()
    address = guest.grow(pages)
    # the mapping has no page after the last of the file: access to such a page raises SIGBUS
    map_private(guest.base + address, _whole_pages(nbytes), fd)
    guest.mappings = (*guest.mappings, Mapping(Descriptor(os.dup(fd)), address, nbytes))
    return address


# -- transfer to another process, which checks the description like any input -------------------------------


def to_wire(snapshot: Snapshot) -> tuple[list[Any], int]:
    """Returns a description of a snapshot, and its memory file's own descriptor, -1 if it has no file."""
    image = snapshot.image
    runs = [number for run in image.runs for number in run] if image else []
    mapped = [[mapping.address, mapping.nbytes] for mapping in snapshot.mappings]
    wire = [snapshot.size, snapshot.globals, image.nbytes if image else 0, runs, mapped]
    return wire, image.file.fd if image else -1


def from_wire(program: Program, wire: list[Any], fd: int, shared: tuple[int, int]) -> Snapshot:
    """Rebuilds a snapshot for guests of the same `program` in this process.

    Takes over `fd`, also when it raises. `shared`: descriptor and size of the only file that guests map.
    Raises ProtocolError if no snapshot of this program can have the description, RuntimeFailure if the file
    is not sealed.
    """
    file = Descriptor(fd) if fd >= 0 else None
    try:
        size, values, nbytes, flat, mapped = wire
        numbers = (size, nbytes, *flat, *itertools.chain.from_iterable(mapped))
        # other values have operators that mean something else, such as % of bytes
        _require(all(type(number) is int for number in numbers), "types")
        runs = list(zip(flat[::2], flat[1::2], strict=True))
        _require((nbytes > 0) == (file is not None) and nbytes % PAGE == 0, "file")
        _require(_ordered(runs, nbytes), "pages")
        mappings = tuple(
            Mapping(Descriptor(os.dup(shared[0])), address, length)
            for address, length in mapped
            if length == shared[1]
        )
        _require(len(mappings) == len(mapped) <= 1, "mappings")
        own = size - sum(mapping.pages * WASM_PAGE for mapping in mappings)
        _require(size % WASM_PAGE == 0 and 0 <= own <= program.limits.memory_bytes, "size")
        _require(nbytes <= size, "file")
        for mapping in mappings:
            end = mapping.address + mapping.pages * WASM_PAGE
            _require(mapping.address % WASM_PAGE == 0 and mapping.address >= 0 and end <= size, "mappings")
        _require(_are_numbers(values, len(program.global_names)), "globals")
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"invalid description of a snapshot: {error!r}") from None
    image = None
    if file is not None:
        check_sealed(file.fd, nbytes)
        image = Image(file, nbytes, runs)
    return Snapshot(program, image, size, values, mappings)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ProtocolError(f"invalid snapshot for this program: wrong {what}")


def _ordered(runs: list[tuple[int, int]], nbytes: int) -> bool:
    """Returns whether the runs are whole pages in ascending order within the file."""
    end = 0
    for at, length in runs:
        if at % PAGE or length % PAGE or at < end or length <= 0:
            return False
        end = at + length
    return end <= nbytes


def _are_numbers(values: Any, count: int) -> bool:
    if not isinstance(values, bytes) or len(values) != count * raw.VAL_SIZE:
        return False
    return all(kind in _NUMBERS for kind in values[:: raw.VAL_SIZE])
