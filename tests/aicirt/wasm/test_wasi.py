from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aicirt.contract.abi import WASI, WASI_SIGNATURES, wasi_type
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Export, GuestExit, Instance, Linker, Program, Ticker
from aicirt.wasm.imports import EBADF, EFAULT, EINVAL, ENOSYS, ESPIPE
from aicirt.wasm.module.check import check
from aicirt.wasm.snapshot import fork
from pyaici.toolchain import build_controller

Make = Callable[..., Instance]
#: the last byte of a memory of one page
END = 65535


def _calling(make: Make, name: str, *args: int, data: str = "") -> Instance:
    """Makes a guest whose pre_process calls a WASI function with `args`."""
    kind = wasi_type(name)
    values = " ".join(f"({t}.const {a})" for t, a in zip(kind.params, args, strict=True))
    imports = f'(import "{WASI}" "{name}" (func $f (param {" ".join(kind.params)}) (result i32)))'
    return make(f'(func (export "aici_pre_process") (result i32) (call $f {values})) {data}', imports=imports)


@pytest.mark.parametrize(
    ("name", "args", "errno"),
    [
        ("args_sizes_get", (0, 4), 0),
        ("args_sizes_get", (0, END), EFAULT),
        ("args_get", (0, 0), 0),
        ("environ_sizes_get", (END - 3, 4), 0),
        ("environ_sizes_get", (END - 2, 4), EFAULT),
        ("environ_get", (-1, -1), 0),
        ("clock_time_get", (1, 0, 8), 0),
        ("clock_time_get", (9, 0, 8), EINVAL),
        ("clock_time_get", (0, 0, -1), EFAULT),
        ("clock_res_get", (0, 8), 0),
        ("fd_close", (1,), 0),
        ("fd_close", (3,), EBADF),
        ("fd_fdstat_get", (0, 0), 0),
        ("fd_fdstat_get", (2, END), EFAULT),
        ("fd_fdstat_get", (3, 0), EBADF),
        ("fd_prestat_get", (3, 0), EBADF),
        ("fd_prestat_dir_name", (3, 0, 9), EBADF),
        ("fd_read", (0, 0, 0, 16), 0),
        ("fd_read", (0, 0, 0, -4), EFAULT),
        ("fd_read", (5, 0, 0, 16), EBADF),
        ("fd_seek", (1, 0, 0, 0), ESPIPE),
        ("fd_write", (0, 0, 0, 16), EBADF),
        ("fd_write", (1, 0, 2000, 16), EINVAL),
        ("fd_write", (1, 65530, 1, 16), EFAULT),
        ("fd_write", (1, -1, 1024, 16), EFAULT),
        ("fd_write", (1, 0, 0, -2), EFAULT),
        ("random_get", (0, 65537), EINVAL),
        ("random_get", (1, 65536), EFAULT),
        ("random_get", (-1, 16), EFAULT),
        ("sched_yield", (), 0),
        ("path_open", (3, 0, 0, 4, 0, 0, 0, 0, 0), ENOSYS),
        ("poll_oneoff", (0, 0, 1, 0), ENOSYS),
        ("sock_accept", (0, 0, 0), ENOSYS),
        ("fd_filestat_get", (1, 0), ENOSYS),
    ],
)
def test_wasi_functions_return_the_expected_errno(
    make: Make, name: str, args: tuple[int, ...], errno: int
) -> None:
    assert _calling(make, name, *args).call(Export.PRE) == errno


@pytest.mark.parametrize("name", sorted(WASI_SIGNATURES.keys() - {"proc_exit"}))
def test_extreme_arguments_do_not_crash(make: Make, name: str) -> None:
    """wasmtime's own WASI would abort the process if called without a context."""
    for value in (-1, 0x7FFFFFFF, 0):
        guest = _calling(make, name, *[value] * len(wasi_type(name).params))
        assert 0 <= guest.call(Export.PRE) <= 76


def test_output_goes_to_the_log_in_order(make: Make) -> None:
    # two iovecs: "hello " and "world", then an empty one
    vectors = (
        r'(data (i32.const 8) "\40\00\00\00\06\00\00\00\46\00\00\00\05\00\00\00\00\00\00\00\00\00\00\00")'
    )
    guest = _calling(make, "fd_write", 2, 8, 3, 0, data=vectors + '(data (i32.const 64) "hello world")')
    assert guest.call(Export.PRE) == 0  # without a log, output is discarded
    log: list[tuple[int, bytes]] = []
    guest.log = lambda fd, data: log.append((fd, data))
    assert guest.call(Export.PRE) == 0
    assert log == [(2, b"hello world")]
    assert guest.read(0, 4) == (11).to_bytes(4, "little")


def test_one_write_takes_a_bounded_number_of_bytes(make: Make) -> None:
    vectors = r'(data (i32.const 8) "\00\00\00\00\ff\ff\00\00\00\00\00\00\ff\ff\00\00")'
    guest = _calling(make, "fd_write", 1, 8, 2, 0, data=vectors)
    log: list[bytes] = []
    guest.log = lambda _fd, data: log.append(data)
    assert guest.call(Export.PRE) == 0
    assert len(log[0]) == 65536 == int.from_bytes(guest.read(0, 4), "little")


def test_iovec_outside_the_memory_prints_nothing(make: Make) -> None:
    vectors = r'(data (i32.const 8) "\40\00\00\00\06\00\00\00\f0\ff\00\00\11\00\00\00")'
    guest = _calling(make, "fd_write", 1, 8, 2, 0, data=vectors)
    log: list[bytes] = []
    guest.log = lambda _fd, data: log.append(data)
    assert guest.call(Export.PRE) == EFAULT
    assert log == []


def test_random_bytes_depend_on_the_seed_and_differ_in_forks(make: Make) -> None:
    def draw(guest: Instance) -> bytes:
        assert guest.call(Export.PRE) == 0
        return guest.read(100, 16)

    one, two = (_calling(make, "random_get", 100, 16) for _ in range(2))
    one.seed = two.seed = 42
    first = draw(one)
    assert first == draw(two) and first != bytes(16)
    children, others = fork(one, 2), fork(two, 2)
    drawn = [draw(child) for child in children]
    assert drawn == [draw(other) for other in others]
    assert len({first, *drawn, draw(one)}) == 4
    other = _calling(make, "random_get", 100, 16)
    other.seed = 43
    assert draw(other) != first
    for child in children + others:
        child.close()


def test_clock_returns_the_time_set_by_the_host(make: Make) -> None:
    guest = _calling(make, "clock_time_get", 0, 1, 8)
    for now in (0, 1_700_000_000_123_456_789):
        guest.clock_ns = now
        assert guest.call(Export.PRE) == 0
        assert int.from_bytes(guest.read(8, 8), "little") == now


@pytest.mark.parametrize("status", [0, 1, 255])
def test_exit_ends_the_guest(make: Make, status: int) -> None:
    imports = f'(import "{WASI}" "proc_exit" (func $exit (param i32)))'
    guest = make(
        f'(func (export "aici_pre_process") (result i32) (call $exit (i32.const {status})) unreachable)',
        imports=imports,
    )
    with pytest.raises(ControllerFailed if status else GuestExit) as caught:
        guest.call(Export.PRE)
    if isinstance(caught.value, ControllerFailed):
        assert caught.value.detail["status"] == status


PLAIN_C = r"""
#include "aici.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
AICI_CONTROLLER
static aici_step_arg arg = {.size = sizeof(arg)};
static aici_mid_result result = {.size = sizeof(result), .verb = AICI_STOP};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    FILE *file = fopen("/etc/passwd", "r");
    printf("fopen: %s, %s\n", file ? "open" : "null", strerror(errno));
    printf("getenv: %s\n", getenv("HOME") ? "set" : "null");
    printf("time: %lld, getchar: %d\n", (long long)time(NULL), getchar());
    fprintf(stderr, "%s %.3f\n", "to stderr", 1.5);
    char *heap = malloc(300000);
    memset(heap, 7, 300000);
    heap = realloc(heap, 600000);
    printf("heap: %d\n", heap[299999]);
    return &result;
}
AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) { exit(3); }
"""


def test_plain_c_program_runs_and_gets_errno_errors(linker: Linker, ticker: Ticker, tmp_path: Path) -> None:
    source = tmp_path / "plain.c"
    source.write_text(PLAIN_C)
    wasm = build_controller(source, tmp_path / "plain.wasm").path.read_bytes()
    check(wasm).require()
    program = Program.compile(linker, wasm)
    guest = Instance(program)
    log: list[tuple[int, bytes]] = []
    guest.log = lambda fd, data: log.append((fd, data))
    guest.clock_ns = 1_234_000_000_000
    with ticker:
        guest.start()
        guest.call(Export.MID)
        out = b"".join(data for fd, data in log if fd == 1).decode().splitlines()
        assert out[0].startswith("fopen: null, ")
        assert out[1:] == ["getenv: null", "time: 1234, getchar: -1", "heap: 7"]
        assert b"".join(data for fd, data in log if fd == 2) == b"to stderr 1.500\n"
        with pytest.raises(ControllerFailed, match="status 3"):
            guest.call(Export.PRE)
    guest.close()
    program.close()
