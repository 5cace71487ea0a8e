"""A part of the SDK, compiled to Wasm behind plain functions, that Python calls without a runtime."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import wasmtime

from aicirt.wasm import raw

#: 64-bit words of an argument, or of the result
_WORDS = raw.RAW_SIZE // 8
#: where the address of a trap follows the most arguments of a function
_TRAP = 8 * _WORDS


class Functions:
    """Passes texts and bytes through a buffer of the guest, which `probe_alloc` and `probe_free` manage.

    wasmtime-py looks at all types and converts all values, which takes 50 us for each of several hundred
    thousand calls; `aicirt.wasm.raw` takes one.
    """

    def __init__(self, module: Path) -> None:
        config = wasmtime.Config()
        config.cache = True
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module.from_file(self._engine, str(module))
        #: what a call takes and returns
        self._frame = (ctypes.c_int64 * (_TRAP + 1))()
        self._words = memoryview(self._frame).cast("B").cast("q")
        self._start()

    def _start(self) -> None:
        self._store = wasmtime.Store(self._engine)
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(self._engine)
        linker.define_wasi()
        # the SDK's library may import host functions; the code under test never calls them
        linker.define_unknown_imports_as_traps(self._module)
        self._exports = linker.instantiate(self._store, self._module).exports(self._store)
        self._context = raw.store_context(raw.pointer(self._store))
        #: by name: the address of a function, the number of its arguments, and whether it returns an i32
        self._functions: dict[str, tuple[int, int, bool]] = {}
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = ctypes.addressof(memory._memory)
        self._call("_initialize")
        self._buffer, self._buffer_size = 0, -1

    def _call(self, name: str, *arguments: int) -> Any:
        """Calls a function of integers and returns its result, which has a sign.

        Raises:
            wasmtime.Trap: the guest trapped.
        """
        words = self._words
        function, count, is_short = self._functions.get(name) or self._find(name)
        assert count == len(arguments)
        for place, argument in enumerate(arguments):
            words[_WORDS * place] = argument
        start = ctypes.addressof(self._frame)
        error = raw.func_call(self._context, function, start, max(count, 1), start + 8 * _TRAP)
        if error:
            raise wasmtime.WasmtimeError(raw.take_error(error))
        if words[_TRAP]:
            trap, words[_TRAP] = words[_TRAP], 0
            raise wasmtime.Trap(raw.take_trap(trap)[0])
        return ctypes.c_int32(words[0]).value if is_short else words[0]

    def _find(self, name: str) -> tuple[int, int, bool]:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        kind = function.type(self._store)
        short, long = wasmtime.ValType.i32(), wasmtime.ValType.i64()
        assert all(value in (short, long) for value in (*kind.params, *kind.results))
        found = ctypes.addressof(function._func), len(kind.params), kind.results == [short]
        self._functions[name] = found
        return found

    def _number(self, name: str, *arguments: int) -> int:
        """Calls a function that returns an unsigned 32-bit number."""
        return int(self._call(name, *arguments)) & 0xFFFFFFFF

    def _room(self, size: int) -> int:
        if size > self._buffer_size:
            self._call("probe_free", self._buffer)
            self._buffer, self._buffer_size = self._call("probe_alloc", size), size
        return self._buffer

    def _put(self, data: bytes, extra: int = 0) -> int:
        at = self._room(len(data) + extra)
        self._set(at, data)
        return at

    def _set(self, at: int, data: bytes) -> None:
        assert at + len(data) <= self.memory()
        ctypes.memmove(raw.memory_data(self._context, self._memory) + at, data, len(data))

    def _get(self, at: int, size: int) -> bytes:
        assert at + size <= self.memory()
        return ctypes.string_at(raw.memory_data(self._context, self._memory) + at, size)

    def memory(self) -> int:
        """Returns the size of the module's memory in bytes."""
        return int(raw.memory_data_size(self._context, self._memory))

    def _text(self, at: int) -> str:
        end = at
        while self._get(end, 1) != b"\0":
            end += 1
        return self._get(at, end - at).decode()


class Probe(Functions):
    """A recognizer."""

    def run(self, text: str | bytes) -> bytes:
        """Returns the state after each prefix, the empty one first: 0 dead, 1 alive, 3 may end."""
        data = text.encode() if isinstance(text, str) else text
        at = self._put(data, extra=len(data) + 1)
        self._call("probe_run", at, len(data), at + len(data))
        return self._get(at + len(data), len(data) + 1)

    def accepts(self, text: str | bytes) -> bool:
        return self.run(text)[-1] == 3

    def alive(self, text: str | bytes) -> bool:
        return self.run(text)[-1] != 0

    def state(self, text: str | bytes) -> int:
        data = text.encode() if isinstance(text, str) else text
        return self._number("probe_state", self._put(data), len(data))

    def append(self, state: int, byte: int) -> int:
        return self._number("probe_append", state, byte)

    def byte_classes(self, classes: bytes) -> None:
        self._call("probe_byte_classes", self._put(classes), max(classes[:128]) + 1)

    def loop_signature(self, state: int) -> int:
        return self._number("probe_loop_signature", state)

    def loop_length(self, state: int) -> int:
        return self._number("probe_loop_length", state)
