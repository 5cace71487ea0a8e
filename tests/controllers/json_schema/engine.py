"""JSON Schema in the SDK, compiled to Wasm with probe.cpp, behind Python methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import wasmtime

from pyaici.build import build_controller

PROBE = Path(__file__).with_name("probe.cpp")
FLEXIBLE, COMPACT, SPACED = range(3)
#: bytes that `Engine.first_allowed` can be offered
_FEW = 16


class Refused(Exception):
    """A refused schema; the text is that for users, with a line for each reason."""


class Engine:
    """Holds one schema, which `compile` replaces."""

    def __init__(self, module: Path) -> None:
        config = wasmtime.Config()
        config.cache = True
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module.from_file(self._engine, str(module))
        self._start()

    def _start(self) -> None:
        self._store = wasmtime.Store(self._engine)
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(self._engine)
        linker.define_wasi()
        # the SDK's library may refer to the host; nothing here calls it
        linker.define_unknown_imports_as_traps(self._module)
        self._exports = linker.instantiate(self._store, self._module).exports(self._store)
        self._call("_initialize")
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = memory
        self._few = self._call("probe_alloc", _FEW)

    def _call(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self._store, *arguments)

    def _with(self, data: bytes, name: str, *arguments: int, extra: int = 0) -> Any:
        at = self._call("probe_alloc", max(len(data), 1))
        self._memory.write(self._store, data, at)
        result = self._call(name, at, len(data), *arguments)
        self._call("probe_free", at)
        return result

    def compile(
        self,
        schema: Any,
        whitespace: int = SPACED,
        warn: bool = False,
        *,
        refuse_unknown_formats: bool = False,
        any_order: bool = False,
        documents: dict[str, Any] | None = None,
    ) -> list[str]:
        """The warnings. `schema` is text, or something that is written as JSON; it may refer to `documents`.

        Raises:
            Refused: the schema is.
        """
        if isinstance(schema, str):
            schema = schema.encode()
        data = schema if isinstance(schema, bytes) else json.dumps(schema, ensure_ascii=False).encode()
        for uri, document in (documents or {}).items():
            name = uri.encode()
            self._with(name + json.dumps(document).encode(), "probe_document", len(name))
        try:
            taken = self._with(
                data, "probe_compile", whitespace, int(warn), int(refuse_unknown_formats), int(any_order)
            )
        except wasmtime.Trap:
            self._start()  # this instance is no longer usable
            raise
        at, size = self._call("probe_message"), self._call("probe_message_size")
        message = bytes(self._memory.read(self._store, at, at + size)).decode()
        if not taken:
            raise Refused(message)
        return message.splitlines()

    def run(self, text: str | bytes) -> tuple[int, bool]:
        """Returns the number of allowed bytes, and whether the text may end there."""
        data = text.encode() if isinstance(text, str) else text
        result = int(self._with(data, "probe_run"))
        assert not self._call("probe_failed")
        return result >> 1, bool(result & 1)

    def accepts(self, text: str | bytes) -> bool:
        size = len(text.encode()) if isinstance(text, str) else len(text)
        return self.run(text) == (size, True)

    def initial(self) -> int:
        return int(self._call("probe_initial"))

    def append(self, state: int, byte: int) -> int:
        return int(self._call("probe_append", state, byte))

    def compact(self, state: int) -> int:
        """Drops states if there are many, as between two masks, and returns the state's new number."""
        return int(self._call("probe_compact", state))

    def memory(self) -> int:
        """Returns the size of the module's memory in bytes."""
        return self._memory.data_len(self._store)

    def first_allowed(self, state: int, offered: bytes) -> int | None:
        """Returns the first of these bytes that is allowed. Faster than `row` where it is an early one."""
        assert len(offered) <= _FEW
        self._memory.write(self._store, offered, self._few)
        at = int(self._call("probe_first", self._few, len(offered), state))
        return offered[at] if at < len(offered) else None

    def may_end(self, state: int) -> bool:
        """Returns whether the text may end."""
        return bool(self._call("probe_may_end", state))

    def row(self, state: int) -> tuple[list[int], bool]:
        """Returns the allowed bytes, and whether the text may end."""
        at = self._call("probe_alloc", 257)
        self._call("probe_row", state, at)
        row = bytes(self._memory.read(self._store, at, at + 257))
        self._call("probe_free", at)
        return [byte for byte in range(256) if row[byte]], bool(row[256])


def build(folder: Path) -> Path:
    """The module."""
    return build_controller([PROBE], folder / "json_schema_probe.wasm").path
