"""An asynchronous guest call: it runs in slices, so that others get their turn."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from aicirt.errors import RuntimeFailure
from aicirt.wasm import raw
from aicirt.wasm.abi import EXPORTS
from aicirt.wasm.instance import Instance

_MAX_ARGS = 2
_RESULT = _MAX_ARGS * raw.VAL_SIZE
_TRAP = _RESULT + raw.VAL_SIZE
_ERROR = _TRAP + 8


class Fiber:
    """A call of `export` that is under way; nothing runs before the first `poll`.

    The stack of the guest is wasmtime's own. Between two polls the instance can only be
    closed. `limit_ms` is CPU time of all slices together; None = the export's own limit.
    """

    __slots__ = ("_address", "_buffer", "_future", "_polled", "done", "instance", "result")

    def __init__(
        self, instance: Instance, export: int, args: Sequence[int] = (), limit_ms: float | None = None
    ) -> None:
        """Raises `RuntimeFailure` if the instance cannot be called now."""
        instance.check_idle()
        name, kind = EXPORTS[export]  # type: ignore[index]
        if len(args) != len(kind.params):
            raise RuntimeFailure(f"{name} takes {len(kind.params)} arguments, not {len(args)}")
        self.instance = instance
        self.done = False
        #: the guest's answer as an unsigned int, once `done`
        self.result = 0
        self._polled = False
        # wasmtime_val_t arguments and result, trap pointer, error pointer: must stay until the end
        self._buffer = ctypes.create_string_buffer(_ERROR + 8)
        self._address = address = ctypes.addressof(self._buffer)
        for i, arg in enumerate(args):
            ctypes.c_uint32.from_address(address + i * raw.VAL_SIZE + raw.VAL_OF).value = arg & 0xFFFFFFFF
        self._future: int | None = raw.func_call_async(
            instance.context,
            instance.handle(export),
            address,
            len(args),
            address + _RESULT,
            len(kind.results),
            address + _TRAP,
            address + _ERROR,
        )
        instance.fiber = self
        instance.callback = name
        limit_ns = instance.program.limit_ns[export] if limit_ms is None else int(limit_ms * 1e6)
        instance.limit_ns = limit_ns
        instance.used_ns = 0
        instance.host_ns = instance.program.host_ns

    def poll(self) -> bool:
        """Run one slice (until the end, or for about one tick); True when the call is done.

        Raises as `Instance.call`; the fiber is over then.
        """
        instance = self.instance
        engine = instance.engine
        if self._future is None:
            raise RuntimeFailure("the call is over")
        if engine.running is not None:
            raise RuntimeFailure("a guest is running: host functions cannot run others")
        if self._polled:
            engine.clock_start = time.thread_time_ns()
            engine.excluded_ns = 0
        else:
            # counted from the first tick that it meets: see Engine._on_epoch
            self._polled = True
            engine.clock_start = -1
        raw.set_epoch_deadline(instance.context, 1)
        engine.running = instance
        done: bool = raw.future_poll(self._future)
        engine.running = None
        if engine.interrupted:
            engine.raise_interrupt()
        if not done:
            instance.used_ns += time.thread_time_ns() - engine.clock_start - engine.excluded_ns
            return False
        self._end()
        words = (ctypes.c_uint64 * 2).from_buffer(self._buffer, _TRAP)
        if words[0] or words[1]:
            raise instance.failure(words[1], words[0])
        self.done = True
        self.result = ctypes.c_uint32.from_address(self._address + _RESULT + raw.VAL_OF).value
        return True

    def run(self) -> int:
        """Poll to the end; the result."""
        while not self.poll():
            pass
        return self.result

    def cancel(self) -> None:
        """Give the call up. The guest is in the middle of something then: it can only be closed."""
        if self._future is not None:
            self._end()
            self.instance.failed = True

    def _end(self) -> None:
        future, self._future = self._future, None
        self.instance.fiber = None
        raw.future_delete(future)
