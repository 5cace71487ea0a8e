"""Translation of wasmtime's traps and errors into typed errors."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from aicirt.contract.errors import AiciError, MemoryLimitError, RuntimeFailure, TrapError
from aicirt.settings import WASM_PAGE
from aicirt.wasm import raw
from aicirt.wasm.module.rewrite import REFUSED
from aicirt.wasm.program import REFUSED_SLOT

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance

#: characters. Every sequence of a request may end with the same trap, so the text of each is bounded
_MAX_BACKTRACE = 4000
#: wasmtime's message, which comes without a trap code, and from a fiber as an error instead of a trap
_UNCAUGHT = "thrown Wasm exception"


def translate(
    guest: Instance, error: int | None, trap: int | None, pending: BaseException | None
) -> BaseException:
    """Returns the exception for a call that ended with an error or a trap (addresses), and frees both.

    `pending` is the exception of a callback that ended the call; it takes precedence.
    """
    message, code = raw.take_trap(trap) if trap else ("", None)
    if error:
        message = raw.take_error(error)
    if pending is not None:
        return pending
    if trap or _cause(message) == _UNCAUGHT:
        refused = _refused_pages(guest)
        return _out_of_memory(guest, message, refused) if refused else _trap(guest, message, code)
    if "exceeds memory limits" in message:
        limit = guest.program.limits.memory_bytes
        return MemoryLimitError(
            f"the initial memory is over the limit of {limit} bytes: {message}", limit=limit
        )
    return RuntimeFailure(f"{guest.callback} failed: {message}")


def _refused_pages(guest: Instance) -> int:
    """Returns the pages that the last memory.grow was refused; 0 if it succeeded."""
    if not guest.program.watches_growth or not guest.base:  # no base: instantiation trapped
        return 0
    value = ctypes.create_string_buffer(raw.VAL_SIZE)
    handle = guest.extern(REFUSED_SLOT, REFUSED.encode())
    raw.global_get(guest.context, handle, ctypes.addressof(value))
    return int.from_bytes(value.raw[raw.VAL_OF : raw.VAL_OF + 4], "little")


def _trap(guest: Instance, message: str, code: int | None) -> AiciError:
    cause = _cause(message)
    kind = raw.TRAP_NAMES.get(code, "other") if code is not None else "other"
    return TrapError(
        f"{guest.callback} trapped: {cause}",
        trap="uncaught_exception" if cause == _UNCAUGHT else kind,
        callback=guest.callback,
        backtrace=message[:_MAX_BACKTRACE],
    )


def _out_of_memory(guest: Instance, message: str, pages: int) -> AiciError:
    guest.refresh()
    limit = guest.program.limits.memory_bytes
    size, asked = guest.size - guest.shared_bytes, pages * WASM_PAGE
    return MemoryLimitError(
        f"{guest.callback} has {size} bytes of memory, requested {asked} more, which is over the limit of "
        f"{limit}, and then trapped: {_cause(message)}",
        callback=guest.callback,
        limit=limit,
        size=size,
        asked=asked,
        backtrace=message[:_MAX_BACKTRACE],
    )


def _cause(message: str) -> str:
    """Returns the cause, which wasmtime writes below the backtrace."""
    return message.strip().rpartition("Caused by:")[2].strip()
