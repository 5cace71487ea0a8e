"""Transfer of guests and snapshots to another process, which checks them like any input."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import ProtocolError, RuntimeFailure
from aicirt.settings import WASM_PAGE
from aicirt.system.files import Descriptor, check_sealed, sealed
from aicirt.wasm import raw
from aicirt.wasm.instance import Instance
from aicirt.wasm.memory import PAGE
from aicirt.wasm.snapshot import Image, Mapping, Runs, Snapshot, pages_to_copy, read_globals

if TYPE_CHECKING:
    from aicirt.wasm.program import Program


#: kinds of wasmtime_val_t that are plain numbers: i32, i64, f32, f64, v128. Other kinds are pointers.
_NUMBERS = range(5)


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
        _require((nbytes > 0) == (file is not None), "file")
        image = None
        if file is None:
            _require(not flat, "pages")
        else:
            image = read_image(nbytes, flat, file)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a snapshot that is none: {error!r}") from None
    return read_snapshot(program, size, values, mapped, image, shared)


def read_image(nbytes: Any, flat: Any, file: Descriptor) -> Image:
    """Reads a snapshot's description of its memory file. Raises as `from_wire` does."""
    try:
        runs = list(zip(flat[::2], flat[1::2], strict=True))
        _require(nbytes > 0 and nbytes % PAGE == 0, "file")
        _require(_ordered(runs, nbytes), "pages")
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a snapshot that is none: {error!r}") from None
    return Image(file, nbytes, runs)


def read_snapshot(
    program: Program, size: Any, values: Any, mapped: Any, image: Image | None, shared: tuple[int, int]
) -> Snapshot:
    """Reads the rest of a snapshot's description. Raises as `from_wire` does."""
    try:
        mappings = tuple(
            Mapping(Descriptor(os.dup(shared[0])), address, length)
            for address, length in mapped
            if length == shared[1]
        )
        _require(len(mappings) == len(mapped) <= 1, "mappings")
        own = size - sum(mapping.pages * WASM_PAGE for mapping in mappings)
        _require(size % WASM_PAGE == 0 and 0 <= own <= program.limits.memory_bytes, "size")
        _require(image is None or image.nbytes <= size, "file")
        for mapping in mappings:
            end = mapping.address + mapping.pages * WASM_PAGE
            _require(mapping.address % WASM_PAGE == 0 and mapping.address >= 0 and end <= size, "mappings")
        _require(_are_numbers(values, len(program.global_names)), "globals")
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a snapshot that is none: {error!r}") from None
    if image is not None:
        check_sealed(image.file.fd, image.nbytes)
    return Snapshot(program, image, size, values, mappings)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ProtocolError(f"a snapshot whose {what} cannot be those of this program")


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


#: files of bases in one message, which may have 16 descriptors. Guests with another base are copied whole
MAX_BASES = 12
_RANDOM_WORDS = 625


def pack(guests: Sequence[Instance], most_bytes: int) -> tuple[list[Any], Descriptor, list[Descriptor]]:
    """Returns a description of guests of one program, a file with their pages, and the files of their bases.

    The guests stay unchanged. Raises `RuntimeFailure` if a guest is in the middle of a call, if more than
    `most_bytes` would have to be copied, or if no memory is left.
    """
    bases: list[Image] = []
    described: list[Any] = []
    pages: list[tuple[int, int, int]] = []
    end = 0
    for guest in guests:
        guest.check_idle()
        guest.refresh()
        image = guest.base_image
        whole = image is not None and image not in bases and len(bases) == MAX_BASES
        runs = pages_to_copy(guest, whole=whole)
        if whole:
            image = None
        if image is not None and image not in bases:
            bases.append(image)
        for at, length in runs:
            pages.append((guest.base + at, end, length))
            end += length
        if end > most_bytes:
            raise RuntimeFailure(f"more than {most_bytes} bytes of memory would have to be copied")
        described.append(
            [
                guest.size,
                read_globals(guest),
                [[mapping.address, mapping.nbytes] for mapping in guest.mappings],
                -1 if image is None else bases.index(image),
                _flat(runs),
                [guest.seed, guest.forks, guest.clock_ns],
                None if guest.random is None else list(guest.random.getstate()[1]),
            ]
        )
    file = Descriptor(sealed("aici-pages", end, pages))
    wire = [[[image.nbytes, _flat(image.runs)] for image in bases], end, described]
    return wire, file, [image.file for image in bases]


def unpack(
    program: Program, wire: Any, file: Descriptor, files: Sequence[Descriptor], shared: tuple[int, int]
) -> list[Instance]:
    """Rebuilds the guests of `pack` in this process. `shared`: see `aicirt.wasm.transfer.from_wire`.

    Raises ProtocolError if `pack` cannot have described guests of this program like this, RuntimeFailure if a
    file is not sealed or no memory is left.
    """
    made: list[Instance] = []
    try:
        bases, nbytes, described = wire
        if not isinstance(nbytes, int):
            raise ProtocolError(f"a file of {nbytes!r} bytes")
        check_sealed(file.fd, nbytes)
        images = [read_image(at, runs, base) for (at, runs), base in zip(bases, files, strict=True)]
        start = 0
        for size, values, mapped, base, flat, counters, numbers in described:
            if not isinstance(base, int) or not -1 <= base < len(images):
                raise ProtocolError("a guest whose base is none of those that came along")
            image = images[base] if base >= 0 else None
            snapshot = read_snapshot(program, size, values, mapped, image, shared)
            runs = list(zip(flat[::2], flat[1::2], strict=True))
            guest = Instance.from_snapshot(snapshot)
            made.append(guest)
            start = _fill(guest, runs, file.fd, start, nbytes)
            _count(guest, counters)
            guest.random = None if numbers is None else _random(numbers)
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        _close(made)
        raise ProtocolError(f"guests that are none: {error!r}") from None
    except BaseException:
        _close(made)
        raise
    return made


def _fill(guest: Instance, runs: Runs, fd: int, start: int, end: int) -> int:
    """Reads a guest's pages from the file, from offset `start` on; returns the offset after them."""
    for at, length in runs:
        if not (isinstance(at, int) and isinstance(length, int)):
            raise ProtocolError("a guest whose pages are nowhere")
        guest.check(at, length)
        if length <= 0 or start + length > end:
            raise ProtocolError("a guest with more pages than came along")
        read = 0
        while read < length:
            count = os.preadv(fd, [guest.view[at + read : at + length]], start + read)
            if not count:
                raise ProtocolError("a file of pages that is shorter than it was")
            read += count
        start += length
    return start


def _count(guest: Instance, numbers: Any) -> None:
    seed, forks, clock_ns = numbers
    if not all(isinstance(number, int) for number in (seed, forks, clock_ns)):
        raise ProtocolError("a guest whose counters are no numbers")
    if not 0 <= clock_ns < 1 << 64:
        raise ProtocolError(f"a guest whose clock shows {clock_ns}")
    guest.seed, guest.forks, guest.clock_ns = seed, forks, clock_ns


def _random(numbers: Any) -> random.Random:
    generator = random.Random()
    if len(numbers) != _RANDOM_WORDS:
        raise ProtocolError("a guest whose random numbers have another state")
    generator.setstate((3, tuple(numbers), None))
    return generator


def _flat(runs: Runs) -> list[int]:
    return [number for run in runs for number in run]


def _close(guests: list[Instance]) -> None:
    for guest in guests:
        guest.close()
