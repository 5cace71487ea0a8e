"""The regex engine, compiled to Wasm with probe.cpp, behind Python methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wasmtime

from pyaici.build import build_controller

PROBE = Path(__file__).with_name("probe.cpp")
NO_BYTE = 256


class Refused(Exception):
    """The engine refuses a pattern: `message` as a user sees it, `offset` in bytes."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


class Engine:
    """One pattern at a time: `compile` replaces it."""

    def __init__(self, module: Path) -> None:
        self._store = wasmtime.Store()
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(self._store.engine)
        linker.define_wasi()
        # the SDK's library may refer to the host; the engine itself never calls it
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

    def compile(self, pattern: str | bytes) -> None:
        data = pattern.encode() if isinstance(pattern, str) else pattern
        if not self._call("probe_compile", self._put(data), len(data)):
            raise Refused(self._text(self._call("probe_error")), self._call("probe_error_offset"))

    def limits(self, *, nfa_states: int = 0, automaton_bytes: int = 0, kept_bytes: int = 0) -> None:
        """For later calls of `compile`; 0 is the default."""
        self._call("probe_limits", nfa_states, automaton_bytes, kept_bytes)

    def run(self, text: str | bytes) -> bytes:
        """After each prefix, the empty one first: 0 dead, 1 a match can be reached, 3 and it may end here."""
        data = text.encode() if isinstance(text, str) else text
        at = self._put(data, extra=len(data) + 1)
        self._call("probe_run", at, len(data), at + len(data))
        return self._get(at + len(data), len(data) + 1)

    def matches(self, text: str | bytes) -> bool:
        return self.run(text)[-1] == 3

    def alive(self, text: str | bytes) -> bool:
        return self.run(text)[-1] != 0

    def characters(self) -> bytes:
        """For each code point 1 if it alone matches."""
        at = self._room(0x110000)
        self._call("probe_characters", 0, 0x110000, at)
        return self._get(at, 0x110000)

    def state(self, text: str | bytes) -> int:
        data = text.encode() if isinstance(text, str) else text
        return int(self._call("probe_state", self._put(data), len(data)))

    def append(self, state: int, byte: int) -> int:
        return int(self._call("probe_append", state, byte)) & 0xFFFFFFFF

    def next_states(self, state: int) -> list[int]:
        """The next state for each byte."""
        at = self._room(1024)
        self._call("probe_row", state, at)
        row = self._get(at, 1024)
        return [int.from_bytes(row[i : i + 4], "little") for i in range(0, 1024, 4)]

    def inexact_states(self, most: int) -> int | None:
        """How many states are not dead but cannot reach a match; None if there are more than `most`."""
        found = int(self._call("probe_inexact_states", most)) & 0xFFFFFFFF
        return None if found == 0xFFFFFFFF else found

    def accepting(self, state: int) -> bool:
        return bool(self._call("probe_accepting", state))

    def forced(self, state: int) -> int | None:
        byte = int(self._call("probe_forced", state))
        return None if byte == NO_BYTE else byte

    def byte_classes(self, classes: bytes) -> None:
        self._call("probe_byte_classes", self._put(classes), max(classes[:128]) + 1)

    def loop_signature(self, state: int) -> int:
        return int(self._call("probe_loop_signature", state)) & 0xFFFFFFFF

    def loop_length(self, state: int) -> int:
        return int(self._call("probe_loop_length", state)) & 0xFFFFFFFF

    def exhausted(self) -> bool:
        return bool(self._call("probe_exhausted"))

    def compact(self, state: int) -> int:
        """The state's new number, or 0 if nothing was dropped."""
        return int(self._call("probe_compact", state)) & 0xFFFFFFFF

    def bytes(self) -> int:
        return int(self._call("probe_bytes"))

    def num_states(self) -> int:
        return int(self._call("probe_num_states"))

    def unicode_version(self) -> str:
        return self._text(self._call("probe_unicode_version"))


def build(folder: Path) -> Path:
    return build_controller([PROBE], folder / "regex_probe.wasm").path
