"""The wasmtime engine of a process: configuration, and the time limits of its guests."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import wasmtime

from aicirt.contract.errors import RuntimeFailure, TimeLimitError
from aicirt.settings import FIBER_STACK, STACK_MARGIN, WASM_STACK, Limits
from aicirt.wasm import raw
from aicirt.wasm.image import Spares
from aicirt.wasm.memory import change_finder

if TYPE_CHECKING:
    from aicirt.wasm.memory import Reaper


#: percent of its limit after which a call is warned: an interpreter then has time to say where it is
_WARNED_PERCENT = 95
#: seconds by which consecutive calls of host functions may exceed the limit
_LOOK_SECONDS = 0.0005
#: most CPU time that is charged between two readings of the clock. A guest needs at most one tick and the
#: code between two checkpoints. More means that the virtual machine was paused, which charges running threads
_MAX_BETWEEN_LOOKS_NS = 2_000_000
_SIGSEGV = 11
_PR_SET_THP_DISABLE = 41
_libc = ctypes.CDLL(None, use_errno=True)
_libc.pthread_self.restype = ctypes.c_ulong


def _config() -> wasmtime.Config:
    """Returns the settings, which `CONFIG_VERSION` in aicirt/modules/store.py sums up."""
    config = wasmtime.Config()
    config.strategy = "cranelift"
    config.cranelift_opt_level = "speed"
    # a process that compiles is short-lived and has one core
    config.parallel_compilation = False
    config.epoch_interruption = True
    # a fresh instance maps the module's data segments instead of copying them
    config.memory_init_cow = True
    config.max_wasm_stack = WASM_STACK
    raw_config = config.ptr()
    bindings: Any = wasmtime._bindings
    bindings.wasmtime_config_async_stack_size_set(raw_config, FIBER_STACK)
    # a 64-bit memory can be of any size, and reserved addresses cannot guard it
    config.wasm_memory64 = False
    config.wasm_threads = False
    config.shared_memory = False
    config.wasm_multi_memory = False
    config.wasm_component_model = False
    bindings.wasmtime_config_wasm_gc_set(raw_config, False)
    # C's setjmp needs exceptions
    config.wasm_exceptions = True
    # results, and so masks, are the same on every machine
    config.wasm_relaxed_simd_deterministic = True
    return config


def segv_handler() -> int:
    """Returns the address of the process's SIGSEGV handler."""
    action = (ctypes.c_uint64 * 20)()
    _libc.sigaction(_SIGSEGV, None, action)
    return int(action[0])


def stack_size() -> int:
    """Returns the stack size of the calling thread in bytes. Raises `RuntimeFailure` if it is unknown."""
    attributes, address, size = (ctypes.c_char * 256)(), ctypes.c_void_p(), ctypes.c_size_t()
    if _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes):
        raise RuntimeFailure("cannot determine the size of this thread's stack")
    _libc.pthread_attr_getstack(attributes, ctypes.byref(address), ctypes.byref(size))
    _libc.pthread_attr_destroy(attributes)
    return size.value


def _check_stack() -> None:
    """Raises `RuntimeFailure` unless the thread has more stack than Wasm may use.

    Otherwise a guest that runs out of stack does not trap.
    """
    size = stack_size()
    if size < WASM_STACK + STACK_MARGIN:
        raise RuntimeFailure(
            f"the stack of this thread has {size >> 10} KiB, but guests need "
            f"{WASM_STACK + STACK_MARGIN >> 10} KiB: raise `ulimit -s` or threading.stack_size()"
        )


def _never() -> bool:
    return False


def _ignore(_guest: Running) -> None:
    pass


class Running(Protocol):
    """A guest during a call, as far as its time is concerned (`aicirt.wasm.instance.Instance`)."""

    limit_ns: int
    used_ns: int
    host_ns: int
    host_work: int
    pending: BaseException | None

    @property
    def callback(self) -> str:
        """The name of the function, for errors."""

    @property
    def fiber(self) -> object | None:
        """The call if it is asynchronous."""


class WasmEngine:
    """The wasmtime engine of a process. Guests run on the thread that made it, one at a time.

    Turns off transparent huge pages for the process. A Python signal handler must not raise while a guest
    runs: an exception that is raised before a callback's `try` cannot pass through C code, and the process
    dies. If Python's own handler of SIGINT is installed, the engine replaces it by one that ends the guest
    and then raises `KeyboardInterrupt`.

    Raises `RuntimeFailure` if the thread's stack is too small for guests.
    """

    __slots__ = (
        "_callback",
        "_segv",
        "_thread",
        "callback_address",
        "changes",
        "clock_start",
        "closed",
        "excluded_ns",
        "frame",
        "interrupted",
        "limits",
        "look_at",
        "pointer",
        "reaper",
        "running",
        "spares",
        "wanted",
        "warn",
        "wasmtime",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        _check_stack()
        # with huge pages, a fork would copy 2 MiB for each page that was changed
        _libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
        self.limits = limits or Limits()
        #: finds changed pages of guests
        self.changes = change_finder()
        self.wasmtime = wasmtime.Engine(_config())
        self.pointer = raw.pointer(self.wasmtime)
        self.closed = False
        self._thread = threading.get_ident()
        self._segv = segv_handler()
        #: frees large guests in another thread; None = `Instance.close` frees every guest at once
        self.reaper: Reaper | None = None
        #: ended guests from which others can start again; none are kept unless their limit is raised
        self.spares = Spares()
        #: the guest that runs now, for callbacks
        self.running: Running | None = None
        #: thread CPU time (ns) up to which the running call has been charged; -1 = charging has not begun
        self.clock_start = -1
        #: thread CPU time (ns) since `clock_start` that slow host functions have used
        self.excluded_ns = 0
        #: time (`time.monotonic`) from which a host function must check the time limit
        self.look_at = 0.0
        #: returns whether other work waits; a fiber whose charging has not begun yields at a tick only then
        self.wanted: Callable[[], bool] = _never
        #: is told, perhaps repeatedly, that the running call has nearly used its limit
        self.warn: Callable[[Any], None] = _ignore
        #: SIGINT arrived while a guest ran
        self.interrupted = False
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)
        #: memory for the next call. All share it, since each guest's own would be out of the caches; only a
        #: fiber that outlasts its first slice keeps it, and leaves another one here
        self.frame = raw.Frame()
        self._callback: Any = raw.EpochCallback(self._on_epoch)
        self.callback_address = ctypes.cast(self._callback, ctypes.c_void_p).value

    def check_process(self) -> None:
        """Raises `RuntimeFailure` if a guest could kill the process, or if the engine is closed.

        `faulthandler.enable()` replaces wasmtime's SIGSEGV handler if it is called after the engine was made.
        Another thread may have a smaller stack, and the callbacks expect one guest at a time.
        """
        if self.closed:
            raise RuntimeFailure("the engine is closed")
        if threading.get_ident() != self._thread:
            raise RuntimeFailure("guests run only on the thread that made the engine")
        if segv_handler() != self._segv:
            raise RuntimeFailure(
                "the SIGSEGV handler was replaced after the engine was created, so a guest's trap would "
                "kill the process: call faulthandler.enable() before you create the engine"
            )

    def _on_interrupt(self, _signal: int, _frame: object) -> None:
        if self.running is None:
            self.raise_interrupt()
        self.interrupted = True

    def raise_interrupt(self) -> None:
        """Raises `KeyboardInterrupt`, also one that was deferred while a guest ran."""
        self.interrupted = False
        self.frame = raw.Frame()  # the call may have left a trap in the old one
        raise KeyboardInterrupt

    def charge(self, guest: Running) -> None:
        """Charges the running call for the CPU time since the last reading of the clock."""
        now = time.thread_time_ns()
        if self.clock_start >= 0:
            guest.used_ns += min(now - self.clock_start - self.excluded_ns, _MAX_BETWEEN_LOOKS_NS)
        self.clock_start = now
        self.excluded_ns = 0

    def check_time(self, guest: Running) -> bool:
        """Charges the running call; returns whether charging had begun before.

        Reading the thread's CPU clock costs a system call. So charging begins at the first tick or at the
        first call of a host function: short calls pay nothing, and no call ends before it has used its
        limit. Raises `TimeLimitError`.
        """
        counted = self.clock_start >= 0
        self.charge(guest)
        if counted and self.is_nearly_over(guest):
            if guest.used_ns >= guest.limit_ns:
                raise self.time_limit_error(guest)
            self.warn(guest)
        return counted

    def is_nearly_over(self, guest: Running) -> bool:
        """Returns whether the running call has used nearly all of its limit, as far as it was charged."""
        return guest.used_ns * 100 >= guest.limit_ns * _WARNED_PERCENT

    def time_limit_error(self, guest: Running) -> TimeLimitError:
        """Returns the error of a call that has used its limit."""
        used, limit, host = guest.used_ns / 1e6, guest.limit_ns / 1e6, guest.host_ns / 1e6
        of_host = f", {host:.1f} ms of it in host functions" if host > 0 else ""
        return TimeLimitError(
            f"{guest.callback} used {used:.1f} ms of CPU time{of_host}, the limit is {round(limit, 1):g} ms",
            callback=guest.callback,
            limit_ms=limit,
            used_ms=used,
        )

    def look(self, guest: Running) -> None:
        """Checks the time limit in a host function, at or after the time `look_at`.

        Wasm code checks the limit only in loops and at the start of functions. It does not check during a
        long series of host calls, or when it returns from a slow one.

        Raises `TimeLimitError`.
        """
        self.look_at = time.monotonic() + _LOOK_SECONDS
        self.check_time(guest)

    def start_clock(self) -> int:
        """Returns the thread's CPU time in ns; begins to charge the running call if that has not begun."""
        now = time.thread_time_ns()
        if self.clock_start < 0:
            self.clock_start = now
            self.excluded_ns = 0
        return now

    def charge_host(self, guest: Running, work: int, spent_ns: int) -> None:
        """Charges the CPU time of a slow host function to the guest, unless its work is free of charge.

        Raises `TimeLimitError`.
        """
        self.excluded_ns += spent_ns
        if work <= guest.host_work:
            guest.host_work -= work
            return
        guest.host_work = 0
        guest.host_ns += spent_ns
        guest.used_ns += spent_ns
        self.check_time(guest)

    def _on_epoch(self, _context: int, _data: int, delta: Any, kind: Any) -> int | None:
        """Continues, yields or ends the running guest when the epoch has passed its deadline."""
        guest = self.running
        try:
            delta[0] = 1
            kind[0] = raw.CONTINUE
            if self.interrupted:
                raise KeyboardInterrupt
            if guest is not None:
                counted = self.check_time(guest)
                if guest.fiber is not None and (counted or self.wanted()):
                    kind[0] = raw.YIELD
            return None
        except BaseException as error:  # an exception must not cross into wasmtime
            self.interrupted = False
            if guest is not None:
                guest.pending = error
            return raw.error_new(b"ended")  # type: ignore[no-any-return]

    def interrupt_slice(self) -> None:
        """Makes the running fiber yield at once, as at a tick. Callable from any thread."""
        raw.increment_epoch(self.pointer)

    def close(self) -> None:
        """Frees the engine. Close all instances and the ticker first."""
        self.closed = True
        if signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.changes.close()
        self.wasmtime.close()
