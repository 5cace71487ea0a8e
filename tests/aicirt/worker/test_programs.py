"""Compiled controllers stay loaded while guests or the cache need them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from aicirt.wasm import Export, Instance, Limits, Linker, Ticker, WasmEngine
from aicirt.wasm.program import compile_module, serialize
from aicirt.worker.templates import Programs

WAT = """(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const {}))
  (func (export "aici_mid_process") (result i32) unreachable))"""


@pytest.fixture
def linker() -> Iterator[Linker]:
    engine = WasmEngine(Limits())
    ticker = Ticker(engine)
    linker = Linker(engine, [])
    with ticker:
        yield linker
    linker.close()
    ticker.close()
    engine.close()


def loaded(paths: list[Path]) -> list[bool]:
    """Returns which compiled code this process has mapped."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return [str(path) in maps for path in paths]


@pytest.fixture
def paths(linker: Linker, tmp_path: Path) -> list[Path]:
    """Returns four compiled modules; `aici_arg` of each returns sixteen times its number."""
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.compiled")
        module = compile_module(linker.engine, bytes(wat2wasm(WAT.format(16 * number))))
        paths[-1].write_bytes(serialize(module))
        module.close()
    return paths


def test_number_of_loaded_programs_is_limited(linker: Linker, paths: list[Path]) -> None:
    programs = Programs(linker, 2)

    def call(number: int) -> int:
        guest = Instance(programs.find_program(str(number), str(paths[number]), "owner"))
        try:
            return guest.call(Export.ARG)
        finally:
            guest.close()

    assert [call(number) for number in (0, 1, 0, 2)] == [0, 16, 0, 32]
    assert loaded(paths) == [True, False, True, False]
    guest = Instance(programs.find_program("2", str(paths[2]), "owner"))
    assert [call(number) for number in (3, 1)] == [48, 16]
    assert loaded(paths) == [False, True, True, True], "a guest still needs it"
    assert guest.call(Export.ARG) == 32
    guest.close()
    del guest
    assert loaded(paths) == [False, True, False, True]
    assert call(2) == 32


def test_an_owner_does_not_push_out_what_others_have_loaded(linker: Linker, paths: list[Path]) -> None:
    programs = Programs(linker, 2)
    kept = programs.find_program("0", str(paths[0]), "one")
    for number in (1, 2, 3):
        programs.find_program(str(number), str(paths[number]), "another")
    assert programs.find_program("0", str(paths[0]), "one") is kept
    assert loaded(paths) == [True, False, False, True]
    assert programs.given_up == 2
