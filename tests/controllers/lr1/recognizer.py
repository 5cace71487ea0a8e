"""A grammar's recognizer, compiled to Wasm with probe.cpp, behind Python methods: for long texts."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import wasmtime
from numpy.typing import NDArray

from lab.runners.host import Vocab
from pyaici.toolchain import build_controller

PROBE = Path(__file__).with_name("probe.cpp")


class Refused(Exception):
    """The grammar is refused, with this message."""


@dataclass(frozen=True)
class Probe:
    """probe.cpp, compiled."""

    engine: wasmtime.Engine
    module: wasmtime.Module


def _vocabulary(self: Recognizer) -> int:
    if not self._image:
        self._image = self._memory.grow(self._store, -(-len(self._vocab.image) // 65536)) * 65536
        self._memory.write(self._store, self._vocab.image, self._image)
    return self._image


def _fail(self: Recognizer, message: int, length: int) -> None:
    raise Refused(self._read(message, length).decode())


class Recognizer:
    """A grammar's recognizer. Raises Refused if the grammar is invalid."""

    def __init__(self, probe: Probe, vocab: Vocab, grammar: str) -> None:
        module = probe.module
        self._store = wasmtime.Store(probe.engine)
        self._store.set_wasi(wasmtime.WasiConfig())
        self._vocab, self._image = vocab, 0
        linker = wasmtime.Linker(probe.engine)
        linker.define_wasi()
        i32 = wasmtime.ValType.i32()
        # wasmtime keeps these functions as long as the store; methods of `self` would keep the store until
        # Python ends, which it then does with a segmentation fault
        vocabulary, fail = (partial(call, weakref.proxy(self)) for call in (_vocabulary, _fail))
        linker.define_func("aici", "vocabulary", wasmtime.FuncType([], [i32]), vocabulary)
        linker.define_func("aici", "fail", wasmtime.FuncType([i32, i32], []), fail)
        linker.define_unknown_imports_as_traps(module)
        self._exports = linker.instantiate(self._store, module).exports(self._store)
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = memory
        self._call("_initialize")
        self.warnings = self._text(self._call_with("probe_open", grammar.encode()))

    def _call(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self._store, *arguments)

    def _call_with(self, name: str, data: bytes, *before: int) -> int:
        at = self._call("probe_alloc", len(data) + 1)
        self._memory.write(self._store, data, at)
        found = int(self._call(name, *before, at, len(data)))
        self._call("probe_free", at)
        return found

    def _read(self, at: int, size: int) -> bytes:
        return bytes(self._memory.read(self._store, at, at + size))

    def _text(self, at: int) -> str:
        end = at
        while self._read(end, 1) != b"\0":
            end += 1
        return self._read(at, end - at).decode()

    def read(self, text: bytes | str) -> int:
        """How many bytes of the text can be read; len(text) + 1 if it is a whole text."""
        data = text.encode() if isinstance(text, str) else text
        found = self._call_with("probe_run", data)
        self._check()
        return found

    def accepts(self, text: bytes | str) -> bool:
        """Is it a whole text of the grammar?"""
        data = text.encode() if isinstance(text, str) else text
        return self.read(data) == len(data) + 1

    def walk(self, text: bytes) -> int:
        """Reads a text for `may_come` and `mask`; returns the number of accepted bytes."""
        found = self._call_with("probe_walk", text)
        self._check()
        return found

    def may_come(self, at: int, text: bytes) -> bool:
        """Returns whether `text` is allowed after `at` bytes of the text that was read."""
        return bool(self._call_with("probe_may_come", text, at))

    def mask(self, at: int) -> NDArray[np.bool_]:
        """Returns the mask after `at` bytes of the text that was read."""
        words = self._read(self._call("probe_mask", at), 4 * self._vocab.view.mask_words)
        self._check()
        return np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little").astype(bool)

    def _check(self) -> None:
        if failure := self._call("probe_failure"):
            raise AssertionError(self._text(failure))


def build(folder: Path) -> Probe:
    """The probe, compiled."""
    built = build_controller(PROBE, folder / "lr1_probe.wasm")
    engine = wasmtime.Engine()
    return Probe(engine, wasmtime.Module.from_file(engine, str(built.path)))
