"""Guests that go on in another process: their memory, globals and all else that a call may see.

What guests share stays shared: the bases of their memories are files, which the other process maps too.
Only pages that were changed since are copied, through one more file. What arrives is checked like any
input, since the process that sends it has run a stranger's code (see `aicirt.wasm.handover`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aicirt.descriptor import Descriptor
from aicirt.errors import ProtocolError, RuntimeFailure
from aicirt.wasm.globals import read_globals
from aicirt.wasm.handover import read_image, read_snapshot
from aicirt.wasm.instance import Instance
from aicirt.wasm.memfd import check_sealed, sealed
from aicirt.wasm.snapshot import Image, Runs, pages_to_copy

if TYPE_CHECKING:
    from aicirt.wasm.program import Program

#: files of bases that go along, of the 16 descriptors that a message may have; memories with other ones are
#: copied whole
MAX_BASES = 12
_RANDOM_WORDS = 625


def pack(guests: Sequence[Instance], most_bytes: int) -> tuple[list[Any], Descriptor, list[Descriptor]]:
    """A description of guests of one program, which go on unchanged, the file with their pages, and the files
    of their bases.

    Raises `RuntimeFailure` for a guest in the middle of a call, if more than `most_bytes` would have to be
    copied, or if there is no memory.
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
    """The guests again, in this process. `shared`: see `aicirt.wasm.handover.from_wire`.

    Raises ProtocolError for what `pack` does not say of guests of this program, RuntimeFailure for files
    that may still change or if there is no memory.
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
    """Reads pages from a place in the file on; returns where the next ones are."""
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
