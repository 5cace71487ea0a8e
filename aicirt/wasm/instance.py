"""Instances of a controller (guests), with their memory, calls and limits."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aicirt.contract.abi import Export
from aicirt.contract.errors import (
    AiciError,
    MemoryLimitError,
    ModuleError,
    ResultError,
    RuntimeFailure,
    TrapError,
)
from aicirt.settings import WASM_PAGE
from aicirt.wasm import raw
from aicirt.wasm.memory import MIN_BYTES, PAGE, page_faults
from aicirt.wasm.module.rewrite import MEMORY, REFUSED
from aicirt.wasm.program import FIRST_GLOBAL_SLOT, MEASURED_INSTANCES, MEMORY_SLOT, REFUSED_SLOT
from aicirt.wasm.raw import ARG, RESULT, TRAP

if TYPE_CHECKING:
    from aicirt.wasm.engine import WasmEngine
    from aicirt.wasm.image import Image, Mapping, Runs, Shell
    from aicirt.wasm.program import Program


#: bytes of address space that are reserved for a memory; pages beyond the memory's size do not exist
_ADDRESSES = 4 << 30
#: characters. Every sequence of a request may end with the same trap, so the text of each is bounded
_MAX_BACKTRACE = 4000
#: wasmtime's message, which comes without a trap code, and from a fiber as an error instead of a trap
_UNCAUGHT = "thrown Wasm exception"


class _Call(Protocol):
    """An asynchronous call (`aicirt.wasm.fiber.Fiber`)."""

    def abandon_call(self) -> None:
        """Abandons the call."""


class Instance:
    """A guest of `program`, fresh or in the state of a snapshot (`aicirt.wasm.snapshot.start_from`).

    A fresh instance needs `start()` before its first call. After a call has raised, the guest is in an
    unknown state and can only be closed.
    """

    __slots__ = (
        "_block",
        "_changed_bytes",
        "_externs",
        "_handles",
        "_memory",
        "again",
        "base",
        "base_image",
        "clock_ns",
        "context",
        "engine",
        "export",
        "failed",
        "fiber",
        "forks",
        "globals",
        "host_ns",
        "host_work",
        "limit_ns",
        "log",
        "mappings",
        "on_close",
        "owner",
        "pending",
        "program",
        "ran",
        "random",
        "seed",
        "shared_bytes",
        "size",
        "store",
        "used_ns",
        "view",
    )

    def __init__(
        self, program: Program, *, mappings: tuple[Mapping, ...] = (), shell: Shell | None = None
    ) -> None:
        """`mappings`: those that the memory will have. `shell`: has the memory of a new guest.

        Raises `MemoryLimitError` if the initial memory is over the limit.

        Raises `RuntimeFailure` if this process or thread cannot run guests or has no address space left.
        """
        engine = program.engine
        engine.check_process()
        self.program: Program = program
        self.engine: WasmEngine = engine
        #: any object of the creator's, for host functions to find
        self.owner: Any = None
        #: receives (1 = stdout or 2 = stderr, bytes) for everything that the guest prints
        self.log: Callable[[int, bytes], None] | None = None
        #: the guest's random numbers depend on it; each fork gets its own seed
        self.seed: int = 0
        self.random: random.Random | None = None
        self.forks = 0
        #: time on the clocks of the guest in ns, 0 before its prompt; None: to be read
        self.clock_ns: int | None = 0
        #: an exception raised in a callback, on its way to the caller of the guest
        self.pending: BaseException | None = None
        self.failed = False
        #: the unfinished asynchronous call, if any
        self.fiber: _Call | None = None
        #: function, CPU limit and CPU use of the current call, the part of it that slow host functions have
        #: used, and the work that these may still do without using it
        self.export = -1
        self.limit_ns = 0
        self.used_ns = 0
        self.host_ns = 0
        self.host_work = 0
        #: the guest may have changed memory since the last `changed_bytes`
        self.ran = True
        self._changed_bytes = 0
        #: the image that the memory is a private copy of; None = the module's own data
        self.base_image: Image | None = None
        self.mappings = mappings
        self.shared_bytes = sum(m.pages * WASM_PAGE for m in mappings)
        self._handles = [0] * len(Export)
        #: addresses of the handles of the mutable globals
        self.globals: list[int] = []
        #: address of the memory in this process (which never moves), and its size at the last `refresh`
        self.base = self.size = 0
        #: takes (guest, runs, reserved) of `close`; returns whether it has taken over the memory
        self.on_close: Callable[[Instance, Runs | None, bool], bool] | None = None
        #: the memory is that of a spare guest
        self.again = shell is not None
        if shell is None:
            self._instantiate()
        else:
            self._adopt(shell)

    def part(self) -> tuple[int, tuple[Any, ...]]:
        """Closes the guest, but leaves what wasmtime has of it to the caller: its store, and the rest."""
        store, handles = self.store, (self._block, self._externs, self._memory, self._handles, self.globals)
        rest = self.context, *handles, self.base, self.size, self.view
        self._leave()
        return store, rest

    def _instantiate(self) -> None:
        engine = self.engine
        program = self.program
        if not program.pre:
            raise RuntimeFailure("the program of this guest is closed")
        self.store: int = raw.store_new(engine.pointer, None, None)
        self.context: int = raw.store_context(self.store)
        self.limit_memory()
        raw.store_epoch_callback(self.store, engine.callback_address, None, None)
        count = FIRST_GLOBAL_SLOT + len(program.global_names)
        # the C structs of this instance: wasmtime_instance_t, then one wasmtime_extern_t each
        self._block = (ctypes.c_char * (raw.INSTANCE_SIZE + count * raw.EXTERN_SIZE))()
        self._externs = ctypes.addressof(self._block)
        raw.set_epoch_deadline(self.context, 1)
        measured = program.num_instances < MEASURED_INSTANCES
        faults = page_faults() if measured else 0
        error = raw.instance_pre_instantiate(program.pre, self.context, self._externs, engine.frame.trap)
        if measured:
            program.count_instance((page_faults() - faults) * PAGE)
        if error or engine.frame.words[TRAP]:
            reason = self.failure(error, engine.frame.take_trap())
            self.close()
            raise reason
        self._memory = self.extern(MEMORY_SLOT, f"{MEMORY}0".encode())
        self.globals = [
            self.extern(FIRST_GLOBAL_SLOT + i, name) for i, name in enumerate(program.global_names)
        ]
        self.base = raw.memory_data(self.context, self._memory)
        self.refresh()

    def _adopt(self, shell: Shell) -> None:
        """Takes over the parts of an ended guest, which has the memory of a new one."""
        self.store, shell.store = shell.store, 0
        self.context, self._block, self._externs, self._memory, self._handles, *rest = shell.parts
        self.globals, self.base, self.size, self.view = rest

    def extern(self, slot: int, name: bytes) -> int:
        """Looks up an export, keeps its handle in `slot`, and returns the handle's address.

        Raises `ModuleError` if the module has no such export.
        """
        address: int = self._externs + raw.INSTANCE_SIZE + slot * raw.EXTERN_SIZE
        if not raw.instance_export_get(self.context, self._externs, name, len(name), address):
            raise ModuleError(f"the module does not export {name.decode()}")
        return address + raw.EXTERN_OF

    # -- memory ---------------------------------------------------------------------------

    def limit_memory(self) -> None:
        """Sets the limits in wasmtime; read-only mappings are added to the guest's own memory limit."""
        limits = self.program.limits
        memory = limits.memory_bytes + self.shared_bytes
        raw.store_limiter(self.store, memory, limits.table_elements, 1, limits.tables, 1)

    def refresh(self) -> None:
        """Rereads the memory's size, so that `view` covers the whole memory.

        Raises `RuntimeFailure` if the guest is closed.
        """
        if not self.store:
            raise RuntimeFailure("the guest is closed")
        size: int = raw.memory_data_size(self.context, self._memory)
        if size != self.size:
            self.size = size
            #: the linear memory as of the last `refresh`; it can have grown since, but never moves.
            #: Slices of it must not outlive the instance
            self.view = memoryview((ctypes.c_ubyte * size).from_address(self.base)).cast("B")

    def check(self, address: int, length: int) -> None:
        """Raises `ResultError` unless the memory has all these bytes, and makes `view` cover them."""
        if address + length > self.size or address < 0 or length < 0:
            self.refresh()
            if address + length > self.size or address < 0 or length < 0:
                raise ResultError(
                    f"{length} bytes at address {address} are outside the memory of {self.size} bytes",
                    address=address,
                    length=length,
                    memory=self.size,
                )

    def read(self, address: int, length: int) -> bytes:
        """Returns a copy of guest memory. Raises `ResultError` if the range is outside the memory."""
        self.check(address, length)
        return bytes(self.view[address : address + length])

    def write_memory(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Writes to guest memory. Raises `ResultError`, and writes nothing, if the range is outside."""
        length = len(data)
        self.check(address, length)
        self.view[address : address + length] = data

    def grow(self, pages: int) -> int:
        """Adds Wasm pages and returns the address of the first. Raises `MemoryLimitError` over the limit."""
        self.refresh()
        previous = ctypes.c_uint64()
        error = raw.memory_grow(self.context, self._memory, pages, ctypes.addressof(previous))
        if error:
            message = raw.take_error(error)
            raise MemoryLimitError(f"the memory cannot grow by {pages * WASM_PAGE} bytes: {message}")
        self.refresh()
        return previous.value * WASM_PAGE

    # -- calls ----------------------------------------------------------------------------------

    def handle(self, export: int) -> int:
        """Returns the address of the wasmtime_func_t of an export. Raises `ModuleError` if it is missing."""
        found = self._handles[export]
        if not found:
            found = self._handles[export] = self.extern(export, self.program.names[export])
        return found

    @property
    def callback(self) -> str:
        """The name of the function of the current or last call, for errors."""
        return "instantiation" if self.export < 0 else self.program.callbacks[self.export]

    def start(self) -> None:
        """Runs the start function and `_initialize`, each within `Limits.init_ms`."""
        for export in (Export.START, Export.INITIALIZE):
            if self.program.has[export]:
                self.call(export)

    def call(
        self, export: int, arg: int = 0, limit_ns: int | None = None, *, right_after: bool = False
    ) -> int:
        """Runs an exported function to its end and returns its result as an unsigned int (0 if it has none).

        `limit_ns` is CPU time; None = the export's own limit. `right_after`: the guest's last call has just
        ended, so that its first tick is still to come, or has come between the two. The ticker must be armed:
        without it, an endless loop is never interrupted.

        Raises `TrapError`, `MemoryLimitError`, any exception of a host function, or `TimeLimitError`, also
        if the function passed its limit just before it returned.
        """
        engine = self.engine
        if self.failed or self.fiber is not None or engine.running is not None:
            raise self.not_callable()
        function = self._handles[export] or self.handle(export)
        self.ran = True
        self.export = export
        self.limit_ns = self.program.limit_ns[export] if limit_ns is None else limit_ns
        self.used_ns = 0
        self.host_ns = 0
        self.host_work = 0  # others wait for synchronous calls: all time counts
        engine.clock_start = -1
        engine.running = self
        frame = engine.frame
        words = frame.words
        words[ARG] = arg
        if not right_after:
            raw.set_epoch_deadline(self.context, 1)
        error = raw.func_call(self.context, function, frame.argument, 1, frame.trap)
        engine.running = None
        if engine.interrupted:
            engine.raise_interrupt()
        if error or words[TRAP]:
            raise self.failure(error, frame.take_trap())
        if self.used_ns:
            engine.charge(self)
            if self.used_ns >= self.limit_ns:
                self.failed = True
                raise engine.time_limit_error(self)
        return words[ARG] & 0xFFFFFFFF

    def touch(self, address: int) -> None:
        """Brings the data of a call into the processor's caches, and changes nothing.

        This covers wasmtime's data, the end of the guest's stack, and the memory at `address`.
        """
        if self.failed or self.fiber is not None:
            return
        raw.set_epoch_deadline(self.context, 1)
        view, size = self.view, self.size
        if self.globals:  # the first global of compiled code is the stack pointer
            frame = self.engine.frame
            raw.global_get(self.context, self.globals[0], frame.result)
            stack = (frame.words[RESULT] & 0xFFFFFFFF) - 16
            if 0 <= stack < size:
                view[stack]
        if address < size:
            view[address]

    def not_callable(self) -> RuntimeFailure:
        """Returns the error that says why this guest cannot be called or cloned now."""
        if self.failed:
            return RuntimeFailure("the guest ended in the middle of a call; it can only be closed")
        if self.fiber is not None:
            return RuntimeFailure("the guest is in the middle of an asynchronous call")
        return RuntimeFailure("a guest is running: host functions cannot call or clone guests")

    def failure(self, error: int | None, trap: int | None) -> BaseException:
        """Frees the wasmtime error or trap that ended a call, and returns the exception for it."""
        self.failed = True
        pending, self.pending = self.pending, None
        return _translate(self, error, trap, pending)

    # -- size and end -------------------------------------------------------------------------------

    def changed_bytes(self) -> int:
        """Returns the bytes of memory that only this guest uses, also in the middle of an asynchronous call.

        These are the pages that differ from its base and from shared mappings, and those in which wasmtime
        keeps its exceptions. Counts again only if the guest has run since the last count.
        """
        if self.ran and self.store:
            self.ran = False
            nbytes = min(self.program.limits.memory_bytes + self.shared_bytes, _ADDRESSES)
            count = self.engine.changes.count
            start, length = self._exception_heap()
            self._changed_bytes = count(self.base, self.base + nbytes)
            if length:
                self._changed_bytes += count(start, start + -(-length // PAGE) * PAGE)
        return self._changed_bytes

    def _exception_heap(self) -> tuple[int, int]:
        # exports cannot be looked up during a call, but the handle of the called function is known
        return raw.exception_heap(next(filter(None, self._handles), 0) or self.handle(Export.ARG))

    def keeps_exceptions(self) -> bool:
        """Returns whether wasmtime has allocated memory for exceptions, which it keeps."""
        return self._exception_heap()[1] > 0

    def check_idle(self) -> None:
        """Raises `RuntimeFailure` during a call of any guest, or after a failed call of this one."""
        if self.failed or self.fiber is not None or self.engine.running is not None:
            raise self.not_callable()

    def close(self, runs: Runs | None = None, *, reserved: bool = False) -> None:
        """Cancels an unfinished call and frees the guest, or makes it a spare one. Idempotent.

        `runs`: as for `take_snapshot`. `reserved`: as for `aicirt.wasm.spares.keep`.
        """
        if self.fiber is not None:
            self.fiber.abandon_call()
        if self.store and (self.on_close is None or not self.on_close(self, runs, reserved)):
            self._free()

    def _free(self) -> None:
        store, reaper, own = self.store, self.engine.reaper, self.size - self.shared_bytes
        self._leave()
        if reaper is None or own < MIN_BYTES:
            raw.store_delete(store)
        else:
            reaper.free(store, own)

    def _leave(self) -> None:
        """Forgets the memory of the guest, which is over."""
        self.failed = True
        self.view = memoryview(b"")
        self.store = self.size = self._changed_bytes = 0
        self.base_image = self.on_close = None
        self.mappings = ()
        self.owner = self.log = None

    def __del__(self) -> None:
        if getattr(self, "store", 0):
            self.on_close = None
            self.close()


def _translate(
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
