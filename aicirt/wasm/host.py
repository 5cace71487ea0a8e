"""Host functions: Python callables that a guest may import.

A callable receives the calling `Instance` and its arguments as unsigned ints, and returns an int (or None if
the signature has no result). It ends the guest by raising `GuestExit`, an `AiciError` or any other exception,
which `Instance.call` or `Fiber.poll` then raises unchanged.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import wasmtime

from aicirt.contract.abi import FuncType
from aicirt.contract.errors import RuntimeFailure
from aicirt.wasm import raw

if TYPE_CHECKING:
    from aicirt.wasm.engine import WasmEngine

HostCallable = Callable[..., "int | None"]


class GuestExit(Exception):
    """Raised when the guest ends itself without an error; `reason` names the call that it used."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A function that guests can import.

    `work`: the function may use much CPU time, in proportion to what this returns for its arguments. The
    guest's limit is checked after each call. In `aici_mid_process` some work is free of charge
    (`Limits.mid_tokenize_bytes`).
    """

    module: str
    name: str
    type: FuncType
    call: HostCallable
    work: Callable[..., int] | None = None


_VALTYPES: Mapping[str, Callable[[], wasmtime.ValType]] = {
    "i32": wasmtime.ValType.i32,
    "i64": wasmtime.ValType.i64,
    "f32": wasmtime.ValType.f32,
    "f64": wasmtime.ValType.f64,
}


class Linker:
    """The host functions of a process, which are linked to every module."""

    __slots__ = ("_callbacks", "engine", "functions", "wasmtime")

    def __init__(self, engine: WasmEngine, functions: list[HostFunction]) -> None:
        self.engine = engine
        self.functions = {(f.module, f.name): f for f in functions}
        self.wasmtime = wasmtime.Linker(engine.wasmtime)
        self._callbacks: list[Any] = []
        for function in functions:
            self._define(function)

    def _define(self, function: HostFunction) -> None:
        kind = wasmtime.FuncType(
            [_VALTYPES[t]() for t in function.type.params], [_VALTYPES[t]() for t in function.type.results]
        )
        callback: Any = raw.HostCallback(_adapter(self.engine, function))
        self._callbacks.append(callback)
        module, name = function.module.encode(), function.name.encode()
        error = raw.linker_define(
            raw.pointer(self.wasmtime),
            module,
            len(module),
            name,
            len(name),
            raw.pointer(kind),
            ctypes.cast(callback, ctypes.c_void_p).value,
            None,
            None,
        )
        if error:
            raise RuntimeFailure(f"host function {function.module}.{function.name}: {raw.take_error(error)}")

    def close(self) -> None:
        """Frees the wasmtime linker; live guests keep their host functions."""
        self.wasmtime.close()


def _adapter(engine: WasmEngine, function: HostFunction) -> Callable[[int, int, Any, int], int | None]:
    """Returns a C callback around `function`. Each value has 16 bytes, accessed as 32-bit words."""
    call, returns = function.call, bool(function.type.results)
    if function.work is not None:
        call = _timed(engine, call, function.work)
    words = raw.RAW_SIZE // 4
    slots = [(i * words, t in ("i64", "f64")) for i, t in enumerate(function.type.params)]
    arity = len(slots)
    wide = any(is_wide for _, is_wide in slots) or function.type.results == ("i64",)

    def arguments(values: Any) -> list[int]:
        return [values[i] | values[i + 1] << 32 if is_wide else values[i] for i, is_wide in slots]

    def callback(_env: int, _caller: int, values: Any, _count: int) -> int | None:
        guest = engine.running
        try:
            if engine.clock_start < 0:
                engine.start_clock()
            if wide:
                result = call(guest, *arguments(values))
            elif arity == 4:
                result = call(guest, values[0], values[words], values[2 * words], values[3 * words])
            elif arity == 2:
                result = call(guest, values[0], values[words])
            elif arity == 0:
                result = call(guest)
            else:
                result = call(guest, *[values[i] for i, _ in slots])
            if returns:
                values[0] = result & 0xFFFFFFFF  # type: ignore[operator]
                values[1] = result >> 32 & 0xFFFFFFFF if wide else 0  # type: ignore[operator]
            if monotonic() >= engine.look_at and guest is not None:
                engine.look(guest)
            return None
        except BaseException as error:
            if guest is not None:
                guest.pending = error
            return raw.trap_new(b"host", 4)  # type: ignore[no-any-return]

    return callback


def _timed(engine: WasmEngine, call: HostCallable, work: Callable[..., int]) -> HostCallable:
    def timed(guest: Any, *args: int) -> int | None:
        start = engine.start_clock()
        result = call(guest, *args)
        engine.charge_host(guest, work(*args), time.thread_time_ns() - start)
        return result

    return timed
