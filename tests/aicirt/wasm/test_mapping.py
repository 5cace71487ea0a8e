"""Sealed files that are mapped into the memory of many guests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import FuncType
from aicirt.contract.errors import MemoryLimitError, RuntimeFailure
from aicirt.system.files import SEALS
from aicirt.wasm import Export, Fiber, HostFunction, Instance, Limits, Linker, Program, Ticker, WasmEngine
from aicirt.wasm.snapshot import fork, map_readonly, start_from, take_snapshot
from lab.runners.wat import controller
from pyaici.toolchain import build_controller

Make = Callable[..., Instance]
NBYTES = 200_000
CONTENT = bytes(range(256)) * (NBYTES // 256) + bytes(NBYTES % 256)


@pytest.fixture
def shared_file() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, CONTENT)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    yield fd
    os.close(fd)


def test_file_is_mapped_after_the_guests_memory(make: Make, shared_file: int) -> None:
    guest = make()
    address = map_readonly(guest, shared_file, NBYTES)
    assert address == 65536 and guest.size == 65536 + 4 * 65536
    assert guest.read(address, NBYTES) == CONTENT
    assert guest.read(address + NBYTES, guest.size - address - NBYTES) == bytes(4 * 65536 - NBYTES)


def test_mappings_do_not_count_as_memory_of_the_guest(make: Make, shared_file: int) -> None:
    guest = make('(func (export "aici_init") (param i32) (result i32) (memory.grow (local.get 0)))')
    map_readonly(guest, shared_file, NBYTES)
    map_readonly(guest, shared_file, NBYTES)
    assert guest.call(Export.INIT, 1024) == 0xFFFFFFFF
    assert guest.call(Export.INIT, 1023) == 9
    child = fork(guest)[0]
    assert child.call(Export.INIT, 1) == 0xFFFFFFFF
    child.close()


def test_clones_share_the_mapped_file_without_a_copy(make: Make, shared_file: int) -> None:
    guest = make()
    address = map_readonly(guest, shared_file, NBYTES)
    guest.grow(1)
    guest.write_memory(guest.size - 4, b"tail")
    snapshot = take_snapshot(guest)
    assert snapshot.nbytes == 4096
    for clone in (fork(guest)[0], start_from(snapshot), fork(start_from(snapshot))[0]):
        assert clone.read(address, NBYTES) == CONTENT
        assert clone.read(clone.size - 4, 4) == b"tail"
        assert clone.mappings == guest.mappings
        clone.close()


WRITES = {
    "store": "(i32.store (i32.const 65536) (i32.const 1))",
    "fill": "(memory.fill (i32.const 65540) (i32.const 1) (i32.const 100000))",
    "copy": "(memory.copy (i32.const 65600) (i32.const 0) (i32.const 5000))",
}


@pytest.mark.parametrize("write", WRITES)
def test_writing_to_a_mapped_file_changes_only_the_guests_own_view(
    make: Make, shared_file: int, write: str
) -> None:
    """With read-only pages, fill and copy would kill the process, since wasmtime does these writes."""
    guest = make(f'(func (export "aici_pre_process") (result i32) {WRITES[write]} (i32.const 7))')
    sibling = make()
    address = map_readonly(guest, shared_file, NBYTES)
    map_readonly(sibling, shared_file, NBYTES)
    assert guest.call(Export.PRE) == 7
    assert guest.read(address, NBYTES) != CONTENT
    guest.write_memory(address, b"host")
    assert sibling.read(address, NBYTES) == CONTENT
    assert os.pread(shared_file, NBYTES, 0) == CONTENT
    for clone in (fork(guest)[0], start_from(take_snapshot(guest))):
        assert clone.read(address, NBYTES) == CONTENT
        clone.close()


def test_files_that_could_change_are_refused(make: Make, tmp_path: Path) -> None:
    guest = make()
    for seals in (0, fcntl.F_SEAL_WRITE, SEALS & ~fcntl.F_SEAL_SHRINK, SEALS & ~fcntl.F_SEAL_WRITE):
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.write(fd, b"x" * 100)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        with pytest.raises(RuntimeFailure, match="not sealed"):
            map_readonly(guest, fd, 100)
        os.close(fd)
    (tmp_path / "file").write_bytes(b"x")
    with open(tmp_path / "file", "rb") as file, pytest.raises(RuntimeFailure, match="not a memory file"):
        map_readonly(guest, file.fileno(), 1)
    assert guest.size == 65536


def test_mapping_more_bytes_than_the_file_has_is_refused(make: Make, shared_file: int) -> None:
    with pytest.raises(RuntimeFailure, match=f"has {NBYTES} bytes"):
        map_readonly(make(), shared_file, NBYTES + 1)


def test_mappings_have_their_own_limit(shared_file: int) -> None:
    engine = WasmEngine(Limits(shared_bytes=5 * 65536))
    linker = Linker(engine, [])
    program = Program.compile(linker, controller())
    guest = Instance(program)
    map_readonly(guest, shared_file, NBYTES)
    with pytest.raises(MemoryLimitError, match="shared mappings"):
        map_readonly(guest, shared_file, NBYTES)
    assert map_readonly(guest, shared_file, 65536) == 5 * 65536
    for part in (guest, program, linker, engine):
        part.close()


def test_host_function_can_map_a_file_while_the_guest_runs(
    engine: WasmEngine, ticker: Ticker, shared_file: int
) -> None:
    kind = FuncType((), ("i32",))
    linker = Linker(engine, [HostFunction("t", "map", kind, lambda g: map_readonly(g, shared_file, NBYTES))])
    code = """(func (export "aici_pre_process") (result i32) (local $at i32)
      (i32.store (i32.const 0) (memory.size))
      (local.set $at (call $map))
      (i32.store (i32.const 4) (memory.size))
      (i32.add (i32.load8_u offset=199 (local.get $at))
        (i32.mul (i32.const 1000) (memory.grow (i32.const 1)))))"""
    program = Program.compile(linker, controller(code, imports='(import "t" "map" (func $map (result i32)))'))
    for run in (lambda g: g.call(Export.PRE), lambda g: Fiber(g, Export.PRE).run()):
        guest = Instance(program)
        with ticker:
            assert run(guest) == 5 * 1000 + 199
        assert guest.read(0, 8) == bytes([1, 0, 0, 0, 5, 0, 0, 0])
        guest.close()
    program.close()
    linker.close()


ALLOCATES_C = r"""
#include "aici.h"
#include <stdlib.h>
#include <string.h>
AICI_CONTROLLER
static aici_step_arg arg = {.size = sizeof(arg)};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
enum { BLOCKS = 400 };
static unsigned char *blocks[BLOCKS];
static unsigned sizes[BLOCKS];
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    static unsigned round;
    const unsigned char *image = aici_vocabulary();
    for (int i = 0; i < BLOCKS; i++) {
        for (unsigned j = 0; j < sizes[i]; j++)
            if (blocks[i][j] != (unsigned char)(i + 1)) return (aici_mid_result *)1;
        free(blocks[i]);
        sizes[i] = (unsigned)(i * 37 + round * 511) % 9000;
        blocks[i] = malloc(sizes[i] ? sizes[i] : 1);
        if (!blocks[i]) return (aici_mid_result *)2;
        memset(blocks[i], i + 1, sizes[i]);
    }
    round++;
    for (unsigned j = 0; j < 200000; j++)
        if (image[j] != (j < 199936 ? (unsigned char)j : 0)) return (aici_mid_result *)3;
    return 0;
}
"""


def test_malloc_works_after_a_mapping_has_grown_the_memory(
    engine: WasmEngine, ticker: Ticker, shared_file: int, tmp_path: Path
) -> None:
    source = tmp_path / "allocates.c"
    source.write_text(ALLOCATES_C)
    wasm = build_controller(source, tmp_path / "allocates.wasm").path.read_bytes()

    def vocabulary(guest: Instance) -> int:
        if not guest.mappings:
            map_readonly(guest, shared_file, NBYTES)
        return guest.mappings[0].address

    linker = Linker(engine, [HostFunction("aici", "vocabulary", FuncType((), ("i32",)), vocabulary)])
    program = Program.compile(linker, wasm)
    guests = [Instance(program)]
    guests[0].start()
    with ticker:
        for turn in range(30):
            guest = guests[turn % len(guests)]
            assert Fiber(guest, Export.MID, limit_ms=1000).run() == 0
            if turn in (3, 9):
                guests.append(fork(guest)[0])
    assert all(guest.size > 1 << 20 for guest in guests)
    for guest in guests:
        guest.close()
    program.close()
    linker.close()
