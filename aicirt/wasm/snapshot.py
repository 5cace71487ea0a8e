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
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import MemoryLimitError, ProtocolError, RuntimeFailure
from aicirt.settings import WASM_PAGE
from aicirt.system.files import Descriptor, check_sealed, sealed
from aicirt.wasm import raw, spares
from aicirt.wasm.image import Image, Mapping, own_runs, replace_memory
from aicirt.wasm.instance import Instance
from aicirt.wasm.memory import PAGE, copy_runs, map_private, nonzero
from aicirt.wasm.program import Snapshot

if TYPE_CHECKING:
    from aicirt.wasm.image import Runs, Shell
    from aicirt.wasm.program import Program

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


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def start_from(state: Snapshot) -> Instance:
    """Makes a guest in the state of a snapshot; both share each page until the guest changes it."""
    guest = _clone(state, spares.take_spare(state))
    guest.on_close = partial(spares.keep, state)
    return guest


def _clone(state: Snapshot, shell: Shell | None = None) -> Instance:
    """Makes a guest, new or from a spare one, and sets its memory and globals."""
    guest = Instance(state.program, mappings=state.mappings, shell=shell)
    try:
        if state.size > guest.size:
            guest.grow((state.size - guest.size) // WASM_PAGE)
        if shell is None:
            _map_into(guest, state)
        elif shell.image is not state.image:
            replace_memory(guest.base, shell.nbytes, state.mappings, state.image)
        guest.base_image = state.image
        write_globals(guest, state.globals)
    except BaseException:
        guest.close()
        raise
    return guest


def _map_into(guest: Instance, state: Snapshot) -> None:
    """Replaces a guest's memory by that of a snapshot; the guest's must be at least as large."""
    if state.image:
        map_private(guest.base, state.image.nbytes, state.image.file.fd)
    for mapping in state.mappings:
        map_private(guest.base + mapping.address, _whole_pages(mapping.nbytes), mapping.file.fd)


def take_snapshot(guest: Instance, runs: Runs | None = None) -> Snapshot:
    """Returns the state of a guest between two calls. Raises `RuntimeFailure` if no memory is left.

    `runs`: what `changed` has returned since the guest ran; None = not known.
    """
    guest.check_idle()
    if runs is None:
        runs = changed(guest)
    else:
        guest.refresh()
    return _take(guest, own_runs(guest.base, guest.mappings, runs))


def grown_bytes(guest: Instance) -> int:
    """Returns how many bytes larger a snapshot of `guest` would be than the one it started from."""
    guest.check_idle()
    base = _base_runs(guest)
    own = [(address - guest.base, length) for address, length in _own_changes(guest)]
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


def fork(parent: Instance, count: int = 1) -> list[Instance]:
    """Makes `count` guests in the state of `parent`, with the same owner, log and clock.

    If the pages that the parent has changed outweigh those of its base, the parent gets a new base. That
    costs about as much as two forks, keeps repeated forks cheap, and lets the children share pages.
    """
    parent.check_idle()
    runs = _own_changes(parent)
    if _rebases(parent, _nbytes(runs)):
        state = _take(parent, runs)
        _map_into(parent, state)
        parent.base_image = state.image
        runs = []
    else:
        state = Snapshot(
            parent.program, parent.base_image, parent.size, read_globals(parent), parent.mappings
        )
    children: list[Instance] = []
    try:
        for _ in range(count):
            child = _clone(state)
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
    """Returns the bytes of memory that `count` forks take: a copy for each child, or a new base."""
    parent.check_idle()
    nbytes = _nbytes(_own_changes(parent))
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
    guest.refresh()
    return guest.engine.changes.changed(guest.base, guest.base + guest.size)


def _own_changes(guest: Instance) -> Runs:
    return own_runs(guest.base, guest.mappings, changed(guest))


def _base_runs(guest: Instance) -> Runs:
    """Returns runs (offset, bytes) of nonzero pages in the memory that the guest started from."""
    if guest.base_image:
        return guest.base_image.runs
    program = guest.program
    if program.initial_runs is None:
        fresh = Instance(program)
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
    """Maps a sealed memory file at the end of a guest's memory and returns its address there.

    The guest sees `nbytes` of the file; they count against `Limits.shared_bytes`, not against its memory. A
    guest should not write there: its writes stay private, and forks do not see them. Raises `RuntimeFailure`
    if the file is not sealed or too short, `MemoryLimitError` over the limit.

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
