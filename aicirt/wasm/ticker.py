"""The clock of time limits: moves the engine's epoch once per tick while guests run.

A Python thread would wait for the interpreter lock while a guest's host function or
another thread holds it. A POSIX timer calls wasmtime's C function directly, in a thread of
the C library, and costs nothing while it is not armed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from typing import Any

import wasmtime

from aicirt.errors import RuntimeFailure
from aicirt.wasm import raw
from aicirt.wasm.engine import Engine
from aicirt.wasm.limits import TICK_MS

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD = 2
#: the first tick may need a new thread on a loaded machine
_START_TIMEOUT_S = 2.0


class _SigEvent(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_char * 32),
    ]


class _TimerSpec(ctypes.Structure):
    _fields_ = [(n, ctypes.c_long) for n in ("every_s", "every_ns", "first_s", "first_ns")]


def _timer_library() -> Any:
    """The C library; before glibc 2.34 timers lay in librt."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)


_libc = _timer_library()
_libc.timer_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.timer_settime.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.timer_delete.argtypes = [ctypes.c_void_p]


class Ticker:
    """Ticks for the guests of one engine; does not survive a fork of the process.

    ``with ticker:`` (or `arm`, `disarm`) around everything that runs guests.
    """

    __slots__ = ("_armed", "_off", "_on", "_timer")

    def __init__(self, engine: Engine, tick_ms: float = TICK_MS) -> None:
        """Raises `RuntimeFailure` if no timer or thread can be made, or if no tick comes."""
        # After timer_delete a tick may still be on its way in a thread of the C library, so
        # the handle it uses is a copy that is never freed (a process has one engine).
        handle = wasmtime._bindings.wasmtime_engine_clone(engine.wasmtime.ptr())
        event = _SigEvent(
            value=ctypes.cast(handle, ctypes.c_void_p).value,
            notify=_SIGEV_THREAD,
            function=raw.address_of("wasmtime_engine_increment_epoch"),
        )
        timer = ctypes.c_void_p()
        if _libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            code = ctypes.get_errno()
            why = "no thread or timer is left (ulimit -u, -i)" if code == errno.EAGAIN else os.strerror(code)
            raise RuntimeFailure(f"the ticker of time limits cannot start: {why}")
        self._timer: ctypes.c_void_p | None = timer
        period = int(tick_ms * 1e6)
        self._on = _TimerSpec(0, period, 0, period)
        self._off = _TimerSpec(0, 0, 0, 0)
        self._armed = 0
        try:
            self._check(engine)
        except BaseException:
            self.close()
            raise

    def _check(self, engine: Engine) -> None:
        """Wait for a tick: timers that cannot make threads fail without a word."""
        store = wasmtime.Store(engine.wasmtime)
        module = wasmtime.Module(engine.wasmtime, '(module (func (export "nothing")))')
        nothing: Any = wasmtime.Instance(store, module, []).exports(store)["nothing"]
        store.set_epoch_deadline(1)
        give_up = time.monotonic() + _START_TIMEOUT_S
        with self:
            while time.monotonic() < give_up:
                try:
                    nothing(store)
                except wasmtime.Trap:
                    return
                time.sleep(0.0002)
        raise RuntimeFailure(
            f"the ticker of time limits does not tick: no thread could be made within {_START_TIMEOUT_S:g} s"
        )

    def arm(self) -> None:
        """Start to tick; calls nest."""
        self._armed += 1
        if self._armed == 1:
            self._set(self._on)

    def disarm(self) -> None:
        """Stop to tick, when called as often as `arm`."""
        self._armed -= 1
        if self._armed == 0:
            self._set(self._off)

    def hasten(self, seconds: float) -> None:
        """The next tick comes in so many seconds, if that is sooner than usual; not armed, there is none."""
        first, period = max(1, int(seconds * 1e9)), self._on.every_ns
        if self._armed and first < period:
            self._set(_TimerSpec(0, period, 0, first))

    def _set(self, spec: _TimerSpec) -> None:
        if self._timer is None:
            raise RuntimeFailure("the ticker is closed")
        if _libc.timer_settime(self._timer, 0, ctypes.byref(spec), None):
            raise RuntimeFailure(f"the ticker cannot be set: {os.strerror(ctypes.get_errno())}")

    def __enter__(self) -> Ticker:
        self.arm()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.disarm()

    def close(self) -> None:
        """Idempotent; before the engine is closed."""
        if self._timer is not None:
            timer, self._timer = self._timer, None
            _libc.timer_delete(timer)

    def __del__(self) -> None:
        if getattr(self, "_timer", None) is not None:
            self.close()
