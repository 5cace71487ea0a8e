"""A part of the SDK, compiled to Wasm behind plain functions, that Python calls without a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wasmtime


class Probe:
    """Passes texts and bytes through a buffer of the guest, which `probe_alloc` and `probe_free` manage."""

    def __init__(self, module: Path) -> None:
        self._store = wasmtime.Store()
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(self._store.engine)
        linker.define_wasi()
        # the SDK's library may import host functions; the code under test never calls them
        compiled = wasmtime.Module.from_file(self._store.engine, str(module))
        linker.define_unknown_imports_as_traps(compiled)
        self._exports = linker.instantiate(self._store, compiled).exports(self._store)
        self._call("_initialize")
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = memory
        self._buffer, self._buffer_size = 0, 0

    def _call(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self._store, *arguments)

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
        self._memory.write(self._store, data, at)
        return at

    def _get(self, at: int, size: int) -> bytes:
        return bytes(self._memory.read(self._store, at, at + size))

    def _text(self, at: int) -> str:
        end = at
        while self._get(end, 1) != b"\0":
            end += 1
        return self._get(at, end - at).decode()

    # -- recognizers ---------------------------------------------------------------------------------

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
