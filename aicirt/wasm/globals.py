"""The mutable globals of a guest as bytes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from aicirt.errors import RuntimeFailure
from aicirt.wasm import raw

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance


def read_globals(guest: Instance) -> bytes:
    """All mutable globals, as an array of wasmtime_val_t."""
    count = len(guest.globals)
    values = ctypes.create_string_buffer(max(1, count * raw.VAL_SIZE))
    address = ctypes.addressof(values)
    for i, handle in enumerate(guest.globals):
        raw.global_get(guest.context, handle, address + i * raw.VAL_SIZE)
    return values.raw[: count * raw.VAL_SIZE]


def write_globals(guest: Instance, values: bytes) -> None:
    """The reverse of `read_globals`."""
    buffer = ctypes.create_string_buffer(values, max(1, len(values)))
    address = ctypes.addressof(buffer)
    for i, handle in enumerate(guest.globals):
        error = raw.global_set(guest.context, handle, address + i * raw.VAL_SIZE)
        if error:
            raise RuntimeFailure(f"a global cannot be restored: {raw.take_error(error)}")
