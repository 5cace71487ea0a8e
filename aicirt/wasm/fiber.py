"""Asynchronous guest calls, which run in slices so that other work gets its turn."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from aicirt.contract.errors import RuntimeFailure
from aicirt.wasm import raw
from aicirt.wasm.instance import Instance

#: offsets in a frame, in 64-bit words: one argument, the result, trap pointer, error pointer
_ARG, _RESULT = raw.VAL_OF // 8, (raw.VAL_SIZE + raw.VAL_OF) // 8
_TRAP, _ERROR = raw.VAL_SIZE // 4, raw.VAL_SIZE // 4 + 1


class _Frame:
    """The memory that wasmtime writes to during a call; it must exist until the call ends."""

    __slots__ = ("_buffer", "address", "error", "result", "trap", "words")

    def __init__(self) -> None:
        self._buffer = (ctypes.c_uint64 * (_ERROR + 1))()
        self.words = memoryview(self._buffer).cast("B").cast("Q")
        self.address = ctypes.addressof(self._buffer)
        self.result = self.address + raw.VAL_SIZE
        self.trap = self.address + 8 * _TRAP
        self.error = self.address + 8 * _ERROR


#: frames of ended calls, for reuse: making one takes as long as a short call
_spare: list[_Frame] = []


class Fiber:
    """A call of `export` in progress; the guest does not run before the first `poll`.

    The guest runs on a stack of wasmtime's own. Between two polls the instance can only be closed.
    `limit_ms` limits the CPU time of all slices together; None = the export's own limit.
    """

    __slots__ = ("_frame", "_future", "_polled", "done", "instance", "result")

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
        self._polled = False
        self._frame = frame = _spare.pop() if _spare else _Frame()
        words = frame.words
        if args:
            words[_ARG] = args[0] & 0xFFFFFFFF
        words[_RESULT] = words[_TRAP] = words[_ERROR] = 0
        self._future: int | None = raw.func_call_async(
            instance.context,
            instance.handle(export),
            frame.address,
            arity,
            frame.result,
            program.results[export],
            frame.trap,
            frame.error,
        )
        instance.fiber = self
        instance.callback = program.callbacks[export]
        instance.limit_ns = program.limit_ns[export] if limit_ms is None else int(limit_ms * 1e6)
        instance.used_ns = 0
        instance.host_ns = program.host_ns[export]

    def poll(self) -> bool:
        """Runs one slice (to the end, or for about one tick); returns whether the call is done.

        Raises as `Instance.call` does; the fiber has ended then.
        """
        instance = self.instance
        engine = instance.engine
        if self._future is None:
            raise RuntimeFailure("the call has already ended")
        if engine.running is not None:
            raise RuntimeFailure("a guest is running: host functions cannot run other guests")
        if self._polled:
            poll = raw.future_poll_unlocked
            engine.clock_start = time.thread_time_ns()
            engine.excluded_ns = 0
        else:
            # charging begins at the first tick or host call: see Engine.check_time
            self._polled = True
            poll = raw.future_poll
            engine.clock_start = -1
        instance.ran = True
        raw.set_epoch_deadline(instance.context, 1)
        engine.running = instance
        done: bool = poll(self._future)
        engine.running = None
        if engine.interrupted:
            engine.raise_interrupt()
        if not done:
            if engine.clock_start >= 0:  # else charging has not begun
                engine.charge(instance)
            return False
        if instance.used_ns:  # as in `Instance.call`, a short call saves the system call
            engine.charge(instance)
        words = self._frame.words
        self.result, trap, error = words[_RESULT] & 0xFFFFFFFF, words[_TRAP], words[_ERROR]
        self._end()
        if trap or error:
            raise instance.failure(error, trap)
        self.done = True
        return True

    def run(self) -> int:
        """Polls until the call is done and returns the result."""
        while not self.poll():
            pass
        return self.result

    def cancel(self) -> None:
        """Abandons the call. The guest is then in an unknown state and can only be closed."""
        if self._future is not None:
            self._end()
            self.instance.failed = True

    def _end(self) -> None:
        future, self._future = self._future, None
        self.instance.fiber = None
        raw.future_delete(future)
        _spare.append(self._frame)
