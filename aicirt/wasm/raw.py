"""Calls of wasmtime's C functions on the hot path, with plain integers.

wasmtime-py's own bindings convert every pointer on every call. Declared with integers only, a call costs
about 0.4 us instead of 1-10 us. Addresses are ints; null is None or 0.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from wasmtime import _bindings, _ffi

from aicirt.contract.abi import EXPORTS
from aicirt.contract.errors import RuntimeFailure

#: size of wasmtime_extern_t and the offset of the handle inside it
EXTERN_SIZE = ctypes.sizeof(_bindings.wasmtime_extern_t)
EXTERN_OF: int = _bindings.wasmtime_extern_t.of.offset
#: size of wasmtime_val_t, the offset of its value, and the size of wasmtime_val_raw_t
VAL_SIZE = ctypes.sizeof(_bindings.wasmtime_val_t)
VAL_OF: int = _bindings.wasmtime_val_t.of.offset
RAW_SIZE = ctypes.sizeof(_bindings.wasmtime_val_raw_t)
INSTANCE_SIZE = ctypes.sizeof(_bindings.wasmtime_instance_t)

#: wasmtime_val_t.kind of an i32
VAL_I32 = 0
#: wasmtime_update_deadline_kind_t
CONTINUE, YIELD = 0, 1

#: trap* callback(env, caller, val_raw args_and_results[], count); seen as 32-bit words
HostCallback = CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(c_uint32), c_size_t)
#: error* callback(context, data, uint64 *delta, uint8 *kind)
EpochCallback = CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(c_uint64), POINTER(c_uint8))


def address_of(name: str) -> int:
    """Returns the address of an exported C function of wasmtime."""
    address = ctypes.cast(getattr(_ffi.dll, name), c_void_p).value
    assert address
    return address


def pointer(owned: Any) -> int:
    """Returns the address that an object of wasmtime-py holds."""
    address = ctypes.cast(owned.ptr(), c_void_p).value
    assert address
    return address


def _function(name: str, result: Any, *args: Any) -> Any:
    # PYFUNCTYPE keeps the interpreter's lock: releasing and reacquiring it costs as much as a short call
    return ctypes.PYFUNCTYPE(result, *args)(address_of(name))


_p = c_void_p
#: type of 64-bit numbers that are passed often: a pointer costs half as much as c_uint64
_word = c_void_p

linker_define = _function(
    "wasmtime_linker_define_func_unchecked", _p, _p, c_char_p, c_size_t, c_char_p, c_size_t, _p, _p, _p, _p
)
linker_instantiate_pre = _function("wasmtime_linker_instantiate_pre", _p, _p, _p, _p)
instance_pre_delete = _function("wasmtime_instance_pre_delete", None, _p)
instance_pre_instantiate = _function("wasmtime_instance_pre_instantiate", _p, _p, _p, _p, _p)
_module_exports = _function("wasmtime_module_exports", None, _p, _p)
_exporttype_name = _function("wasm_exporttype_name", _p, _p)
_exporttypes_delete = _function("wasm_exporttype_vec_delete", None, _p)
instance_export_get = _function("wasmtime_instance_export_get", c_bool, _p, _p, c_char_p, c_size_t, _p)

store_new = _function("wasmtime_store_new", _p, _p, _p, _p)
store_delete = _function("wasmtime_store_delete", None, _p)
#: store_delete for large memories: releases the interpreter's lock, so that other Python threads can run
store_delete_unlocked = CFUNCTYPE(None, _p)(address_of("wasmtime_store_delete"))
store_context = _function("wasmtime_store_context", _p, _p)
store_limiter = _function("wasmtime_store_limiter", None, _p, *[ctypes.c_int64] * 5)
store_epoch_callback = _function("wasmtime_store_epoch_deadline_callback", None, _p, _p, _p, _p)
set_epoch_deadline = _function("wasmtime_context_set_epoch_deadline", None, _p, _word)

func_call = _function("wasmtime_func_call_unchecked", _p, _p, _p, _p, _word, _p)
func_call_async = _function("wasmtime_func_call_async", _p, _p, _p, _p, _word, _p, _word, _p, _p)
future_poll = _function("wasmtime_call_future_poll", c_bool, _p)
#: future_poll for calls that are known to be long: releases the interpreter's lock, for other Python threads
future_poll_unlocked = CFUNCTYPE(c_bool, _p)(address_of("wasmtime_call_future_poll"))
future_delete = _function("wasmtime_call_future_delete", None, _p)

memory_data = _function("wasmtime_memory_data", _p, _p, _p)
memory_data_size = _function("wasmtime_memory_data_size", c_size_t, _p, _p)
memory_grow = _function("wasmtime_memory_grow", _p, _p, _p, c_uint64, _p)
global_get = _function("wasmtime_global_get", None, _p, _p, _p)
global_set = _function("wasmtime_global_set", _p, _p, _p, _p)

increment_epoch = _function("wasmtime_engine_increment_epoch", None, _p)

error_new = _function("wasmtime_error_new", _p, c_char_p)
trap_new = _function("wasmtime_trap_new", _p, c_char_p, c_size_t)


#: 64-bit words of a `Frame`: argument and result (each a wasmtime_val_t; a synchronous call has both in ARG),
#: trap pointer, error pointer
ARG, RESULT = VAL_OF // 8, (VAL_SIZE + VAL_OF) // 8
TRAP, ERROR = VAL_SIZE // 4, VAL_SIZE // 4 + 1


class Frame:
    """The memory that wasmtime reads and writes during a call; it must exist until the call ends."""

    __slots__ = ("_buffer", "argument", "call_async", "result", "trap", "words")

    def __init__(self) -> None:
        self._buffer = (c_uint64 * (ERROR + 1))()
        #: access to the view takes half as long as access to the array
        self.words = memoryview(self._buffer).cast("B").cast("Q")
        start = ctypes.addressof(self._buffer)
        self.argument, self.result = start + 8 * ARG, start + VAL_SIZE
        self.trap, error = start + 8 * TRAP, start + 8 * ERROR
        #: the last arguments of `func_call_async`, by `Export`
        self.call_async = tuple(
            (start, len(kind.params), self.result, len(kind.results), self.trap, error)
            for _, kind in EXPORTS.values()
        )

    def take_trap(self) -> int:
        """Returns the address of a trap, or 0; the caller frees it."""
        trap, self.words[TRAP] = self.words[TRAP], 0
        return trap


#: offsets in bytes inside structures that wasmtime's C API does not expose: VMFuncRef.vmctx,
#: VMContext.store_context and VMStoreContext.gc_heap (base and length).
#: tests/aicirt/wasm/test_snapshot.py detects a change of them
_VMCTX, _STORE_CONTEXT, _GC_HEAP = 24, 8, 32
_VMCTX_MAGIC = b"core"


def exception_heap(function: int) -> tuple[int, int]:
    """Returns address and bytes of the memory in which the store of a wasmtime_func_t keeps exceptions.

    The size is 0 if there is no such memory. The store keeps this memory until it is deleted. Raises
    `RuntimeFailure` if this version of wasmtime has another layout.
    """
    context = _word_at(_word_at(function + 8) + _VMCTX)
    if ctypes.string_at(context, len(_VMCTX_MAGIC)) != _VMCTX_MAGIC:
        raise RuntimeFailure(
            "this version of wasmtime has an unknown layout: install the version aici requires"
        )
    store = _word_at(context + _STORE_CONTEXT)
    return _word_at(store + _GC_HEAP), _word_at(store + _GC_HEAP + 8)


def _word_at(address: int) -> int:
    return c_uint64.from_address(address).value


def export_names(module: int) -> frozenset[str]:
    """Returns the names of all exports of a wasmtime_module_t.

    wasmtime-py reads their types too, which takes ten times as long.
    """
    exports = _bindings.wasm_exporttype_vec_t()
    _module_exports(module, ctypes.addressof(exports))
    first = ctypes.cast(exports.data, c_void_p).value
    found = (c_void_p * exports.size).from_address(first) if first else ()
    names = frozenset(_name_at(_exporttype_name(export)) for export in found)
    _exporttypes_delete(ctypes.addressof(exports))
    return names


def _name_at(address: int) -> str:
    """Decodes a wasm_name_t, which consists of a size and a pointer to the data."""
    return ctypes.string_at(_word_at(address + 8), _word_at(address)).decode()


def take_trap(address: int) -> tuple[str, int | None]:
    """Returns the message (with the Wasm backtrace) and the code of a trap, and frees the trap."""
    owned = ctypes.cast(address, POINTER(_bindings.wasm_trap_t))
    text = _bindings.wasm_byte_vec_t()
    _bindings.wasm_trap_message(owned, ctypes.byref(text))
    message = _take_text(text)
    code = c_uint8()
    known = _bindings.wasmtime_trap_code(owned, ctypes.byref(code))
    _bindings.wasm_trap_delete(owned)
    return message, code.value if known else None


def take_error(address: int) -> str:
    """Returns the message of an error, and frees the error."""
    owned = ctypes.cast(address, POINTER(_bindings.wasmtime_error_t))
    text = _bindings.wasm_byte_vec_t()
    _bindings.wasmtime_error_message(owned, ctypes.byref(text))
    message = _take_text(text)
    _bindings.wasmtime_error_delete(owned)
    return message


def _take_text(text: Any) -> str:
    data = ctypes.string_at(text.data, text.size) if text.size else b""
    _bindings.wasm_byte_vec_delete(ctypes.byref(text))
    return data.rstrip(b"\0").decode(errors="replace")


#: trap code -> name in `TrapError.detail["trap"]`
TRAP_NAMES = {
    member.value: member.name.removeprefix("WASMTIME_TRAP_CODE_").lower()
    for member in _bindings.wasmtime_trap_code_enum
}
TRAP_NAMES.update(
    {
        _bindings.wasmtime_trap_code_enum.WASMTIME_TRAP_CODE_MEMORY_OUT_OF_BOUNDS.value: "out_of_bounds",
        _bindings.wasmtime_trap_code_enum.WASMTIME_TRAP_CODE_UNREACHABLE_CODE_REACHED.value: "unreachable",
        _bindings.wasmtime_trap_code_enum.WASMTIME_TRAP_CODE_INTEGER_DIVISION_BY_ZERO.value: "divide_by_zero",
    }
)
