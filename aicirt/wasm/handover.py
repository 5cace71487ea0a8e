"""Snapshots that go from one process to another: a description, and the memory file as a descriptor.

The process that sends one has run a stranger's code, so the description is checked like any input: nothing
in it may make the receiver touch memory that is not the new guest's own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aicirt.descriptor import Descriptor
from aicirt.errors import ProtocolError
from aicirt.wasm import raw
from aicirt.wasm.limits import WASM_PAGE
from aicirt.wasm.memfd import check_sealed
from aicirt.wasm.pages import PAGE
from aicirt.wasm.snapshot import Image, Mapping, Snapshot

if TYPE_CHECKING:
    from aicirt.wasm.program import Program

#: kinds of wasmtime_val_t that are plain numbers: i32, i64, f32, f64, v128. Others would be pointers.
_NUMBERS = range(5)


def to_wire(snapshot: Snapshot) -> tuple[list[Any], int]:
    """What describes a snapshot, and the descriptor of its memory file (-1: none), which is not copied."""
    image = snapshot.image
    runs = [number for run in image.runs for number in run] if image else []
    mapped = [[mapping.address, mapping.nbytes] for mapping in snapshot.mappings]
    wire = [snapshot.size, snapshot.globals, image.nbytes if image else 0, runs, mapped]
    return wire, image.file.fd if image else -1


def from_wire(program: Program, wire: list[Any], fd: int, shared: tuple[int, int]) -> Snapshot:
    """The snapshot again, for guests of the same `program` in this process.

    Takes `fd` over, also when it raises. `shared`: descriptor and size of the only file that guests map.
    Raises ProtocolError for a description that no snapshot of this program can have, RuntimeFailure if the
    file is not sealed.
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
    """What a snapshot says of its memory file. Raises as `from_wire`."""
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
    """The rest of it. Raises as `from_wire`."""
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
    """Whole pages, one after the other, within the file."""
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
