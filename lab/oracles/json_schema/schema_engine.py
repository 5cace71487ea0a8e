"""JSON Schema in the SDK, compiled to Wasm with probe.cpp, behind Python methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import wasmtime

from lab.runners.probe import Functions
from pyaici.toolchain import build_controller

PROBE = Path(__file__).with_name("probe.cpp")
FLEXIBLE, COMPACT, SPACED = range(3)


class Refused(Exception):
    """A refused schema; the text is that for users, with a line for each reason."""


class Engine(Functions):
    """Holds one schema, which `compile` replaces."""

    def _with(self, data: bytes, name: str, *arguments: int) -> Any:
        return self._call(name, self._put(data), len(data), *arguments)

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
        message = self._get(self._call("probe_message"), self._call("probe_message_size")).decode()
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

    def first_allowed(self, state: int, offered: bytes) -> int | None:
        """Returns the first of these bytes that is allowed. Faster than `row` where it is an early one."""
        at = int(self._with(offered, "probe_first", state))
        return offered[at] if at < len(offered) else None

    def may_end(self, state: int) -> bool:
        """Returns whether the text may end."""
        return bool(self._call("probe_may_end", state))

    def row(self, state: int) -> tuple[list[int], bool]:
        """Returns the allowed bytes, and whether the text may end."""
        at = self._room(257)
        self._call("probe_row", state, at)
        row = self._get(at, 257)
        return [byte for byte in range(256) if row[byte]], bool(row[256])


def build(folder: Path) -> Path:
    """The module."""
    return build_controller([PROBE], folder / "json_schema_probe.wasm").path
