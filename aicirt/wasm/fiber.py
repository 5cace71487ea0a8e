"""Asynchronous guest calls, which run in slices so that other work gets its turn, and the ticker of these."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import wasmtime

from aicirt.contract.errors import RuntimeFailure
from aicirt.settings import TICK_MS
from aicirt.wasm import raw
from aicirt.wasm.instance import Instance
from aicirt.wasm.raw import ARG, ERROR, RESULT, TRAP, Frame

if TYPE_CHECKING:
    from aicirt.wasm.engine import WasmEngine

#: stands for the fiber of a guest in its first slice, which most calls do not outlast
_FIRST_SLICE: Any = object()


def begin(instance: Instance, export: int, limit_ns: int, arg: int = 0) -> int | Fiber:
    """Runs the first slice of a call; returns its result as an unsigned int, or the call if it goes on.

    `arg` is ignored by functions without parameters. Raises as `Fiber` and `Fiber.poll` do.
    """
    engine = instance.engine
    if instance.failed or instance.fiber is not None or engine.running is not None:
        raise instance.not_callable()
    context, frame = instance.context, engine.frame
    words = frame.words
    words[ARG], words[RESULT] = arg, 0
    function = instance._handles[export] or instance.handle(export)
    engine.running = instance  # from here on, Ctrl-C is deferred
    future = raw.func_call_async(context, function, *frame.call_async[export])
    instance.fiber = _FIRST_SLICE
    instance.export = export
    instance.limit_ns = limit_ns
    instance.used_ns = 0
    instance.host_work = instance.program.host_work[export]
    instance.host_ns = 0
    instance.ran = True
    # charging begins at the first tick or host call: see Engine.check_time
    engine.clock_start = -1
    raw.set_epoch_deadline(context, 1)
    done = raw.future_poll(future)
    if not done or engine.interrupted:
        engine.frame = Frame()  # the fiber keeps this one
        fiber = instance.fiber = Fiber._after_a_slice(instance, frame, future)
        engine.running = None
        if engine.interrupted:
            engine.raise_interrupt()
        if engine.clock_start >= 0:  # else charging has not begun
            engine.charge(instance)
        return fiber
    raw.future_delete(future)
    instance.fiber = engine.running = None
    if engine.interrupted:
        engine.raise_interrupt()
    if instance.used_ns or words[TRAP] or words[ERROR]:
        return _result(instance, frame)
    return words[RESULT] & 0xFFFFFFFF


def _result(instance: Instance, frame: Frame) -> int:
    """Returns the result of a call that is done, or raises its error."""
    if instance.used_ns:  # as in `Instance.call`, a short call saves the system call
        instance.engine.charge(instance)
    words = frame.words
    if words[TRAP] or words[ERROR]:
        error, words[ERROR] = words[ERROR], 0
        raise instance.failure(error, frame.take_trap())
    return words[RESULT] & 0xFFFFFFFF


class Fiber:
    """A call of `export` in progress; the guest does not run before the first `poll`.

    The guest runs on a stack of wasmtime's own. Between two polls the instance can only be closed.
    `limit_ms` limits the CPU time of all slices together; None = the export's own limit.
    """

    __slots__ = ("_call", "_frame", "_future", "done", "instance", "result")

    def __init__(
        self, instance: Instance, export: int, args: Sequence[int] = (), limit_ms: float | None = None
    ) -> None:
        """Raises `RuntimeFailure` if the instance cannot be called now."""
        instance.check_idle()
        program = instance.program
        arity = program.arity[export]
        if len(args) != arity:
            raise RuntimeFailure(f"{program.callbacks[export]} takes {arity} arguments, not {len(args)}")
        self.instance = instance
        self.done = False
        #: the function's result as an unsigned int, once `done`
        self.result = 0
        limit = program.limit_ns[export] if limit_ms is None else int(limit_ms * 1e6)
        #: arguments of `begin`; None once the call has begun or has been abandoned
        self._call: tuple[int, int, int] | None = export, limit, args[0] & 0xFFFFFFFF if args else 0
        self._frame: Frame | None = None
        self._future: int | None = None
        instance.fiber = self

    @classmethod
    def _after_a_slice(cls, instance: Instance, frame: Frame, future: int) -> Fiber:
        fiber = cls.__new__(cls)
        fiber.instance, fiber.done, fiber.result, fiber._call = instance, False, 0, None
        fiber._frame, fiber._future = frame, future
        return fiber

    def poll(self) -> bool:
        """Runs one slice (to the end, or for about one tick); returns whether the call is done.

        Raises as `Instance.call` does; the fiber has ended then.
        """
        instance = self.instance
        engine = instance.engine
        if self._future is None and self._call is None:
            raise RuntimeFailure("the call has already ended")
        if engine.running is not None:
            raise RuntimeFailure("a guest is running: host functions cannot run other guests")
        if self._call is not None:
            return self._begin(*self._call)
        instance.ran = True
        raw.set_epoch_deadline(instance.context, 1)
        engine.clock_start = time.thread_time_ns()
        engine.excluded_ns = 0
        engine.running = instance
        done: bool = raw.future_poll_unlocked(self._future)
        engine.running = None
        if engine.interrupted:
            engine.raise_interrupt()
        if not done:
            engine.charge(instance)
            return False
        frame = self._end_call()
        assert frame is not None
        self.result = _result(instance, frame)
        self.done = True
        return True

    def _begin(self, export: int, limit_ns: int, arg: int) -> bool:
        self._call = self.instance.fiber = None
        outcome = begin(self.instance, export, limit_ns, arg)
        if isinstance(outcome, int):
            self.result = outcome
            self.done = True
            return True
        self._frame, self._future = outcome._frame, outcome._future
        self.instance.fiber = self
        return False

    def run(self) -> int:
        """Polls until the call is done and returns the result."""
        while not self.poll():
            pass
        return self.result

    def abandon_call(self) -> None:
        """Abandons the call. The guest is then in an unknown state and can only be closed."""
        if self._future is not None or self._call is not None:
            self._end_call()
            self.instance.failed = True

    def _end_call(self) -> Frame | None:
        future, frame = self._future, self._frame
        self._future = self._frame = self._call = self.instance.fiber = None
        if future is not None:
            raw.future_delete(future)
        return frame


_CLOCK_MONOTONIC = 1
_SIGEV_THREAD = 2
#: pauses in which the first tick must come, and seconds of each: the tick may need a new thread. On a loaded
#: machine each pause takes longer, as that thread does
_FIRST_TICK_PAUSES, _PAUSE_SECONDS = 10_000, 0.0002


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
    """Returns the library with the timer functions: the C library, or librt before glibc 2.34."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)


_timers = _timer_library()
_timers.timer_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_timers.timer_settime.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_timers.timer_delete.argtypes = [ctypes.c_void_p]


class Ticker:
    """A timer that advances the epoch of one engine; a fork of the process does not inherit it.

    Run guests only inside ``with ticker:``, or between `arm` and `disarm`.
    """

    __slots__ = ("_armed", "_off", "_on", "_timer")

    def __init__(self, engine: WasmEngine, tick_ms: float = TICK_MS) -> None:
        """Raises `RuntimeFailure` if no timer or thread can be made, or if no tick comes."""
        # After timer_delete, a thread of the C library may still deliver a tick. The tick therefore uses a
        # copy of the handle that is never freed (a process has one engine).
        handle = wasmtime._bindings.wasmtime_engine_clone(engine.wasmtime.ptr())
        event = _SigEvent(
            value=ctypes.cast(handle, ctypes.c_void_p).value,
            notify=_SIGEV_THREAD,
            function=raw.address_of("wasmtime_engine_increment_epoch"),
        )
        timer = ctypes.c_void_p()
        if _timers.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            code = ctypes.get_errno()
            no_room = "no thread or timer is left (raise ulimit -u or -i)"
            why = no_room if code == errno.EAGAIN else os.strerror(code)
            raise RuntimeFailure(f"the ticker of time limits cannot start: {why}")
        self._timer: ctypes.c_void_p | None = timer
        period = int(tick_ms * 1e6)
        self._on = _TimerSpec(0, period, 0, period)
        self._off = _TimerSpec(0, 0, 0, 0)
        self._armed = 0
        try:
            self._wait_for_tick(engine)
        except BaseException:
            self.close()
            raise

    def _wait_for_tick(self, engine: WasmEngine) -> None:
        """Waits for a tick, because a timer that cannot make threads fails silently."""
        store = wasmtime.Store(engine.wasmtime)
        module = wasmtime.Module(engine.wasmtime, '(module (func (export "nothing")))')
        nothing: Any = wasmtime.Instance(store, module, []).exports(store)["nothing"]
        store.set_epoch_deadline(1)
        with self:
            for _ in range(_FIRST_TICK_PAUSES):
                try:
                    nothing(store)
                except wasmtime.Trap:
                    return
                time.sleep(_PAUSE_SECONDS)
        raise RuntimeFailure(
            "the ticker of time limits does not run: no thread was created within "
            f"{_FIRST_TICK_PAUSES * _PAUSE_SECONDS:g} s"
        )

    def arm(self) -> None:
        """Starts ticking; calls nest."""
        self._armed += 1
        if self._armed == 1:
            self._set(self._on)

    def disarm(self) -> None:
        """Stops ticking when called as often as `arm`."""
        self._armed -= 1
        if self._armed == 0:
            self._set(self._off)

    def hasten(self, seconds: float) -> None:
        """Moves the next tick to `seconds` from now if less than a period; does nothing unless armed."""
        first, period = max(1, int(seconds * 1e9)), self._on.every_ns
        if self._armed and first < period:
            self._set(_TimerSpec(0, period, 0, first))

    def _set(self, spec: _TimerSpec) -> None:
        if self._timer is None:
            raise RuntimeFailure("the ticker is closed")
        if _timers.timer_settime(self._timer, 0, ctypes.byref(spec), None):
            raise RuntimeFailure(f"the ticker cannot be set: {os.strerror(ctypes.get_errno())}")

    def __enter__(self) -> Ticker:
        self.arm()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.disarm()

    def close(self) -> None:
        """Deletes the timer. Idempotent. Call before the engine is closed."""
        if self._timer is not None:
            timer, self._timer = self._timer, None
            _timers.timer_delete(timer)

    def __del__(self) -> None:
        if getattr(self, "_timer", None) is not None:
            self.close()
