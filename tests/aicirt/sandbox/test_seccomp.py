"""Seccomp filters, run by an interpreter like the kernel's, and numbers of system calls."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import ziglang

from aicirt.sandbox import calls
from aicirt.sandbox.seccomp import LAST, NUMBERS, Answer, Filter

HEADERS = Path(ziglang.__file__).parent / "lib/libc/include"
MACHINES = {
    "x86_64": (0xC000003E, 0, "x86-linux-any/asm/unistd_64.h"),
    "aarch64": (0xC00000B7, 1, "aarch64-linux-any/asm/unistd_64.h"),
}
FILTERS = (calls.worker, calls.compiler)


def run(program: bytes, number: int, arch: int, *arguments: int) -> int:
    """Runs the BPF program for a system call and returns its answer."""
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", number, arch, 0, *values)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = word = 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            (word,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x54:
            word &= constant
        elif operation in (0x15, 0x25):
            at += if_true if (word == constant if operation == 0x15 else word > constant) else if_false
        else:
            assert operation == 0x06
            return int(constant)


def answer(rules: Filter, machine: str, name: str, *arguments: int) -> Answer:
    arch, column, _ = MACHINES[machine]
    program, number = rules.program(machine), NUMBERS[name][column]
    assert program is not None and number is not None
    return Answer(run(program, number, arch, *arguments))


@pytest.mark.parametrize("machine", MACHINES)
def test_system_call_numbers_match_the_kernels_headers(machine: str) -> None:
    _, column, header = MACHINES[machine]
    text = (HEADERS / header).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    assert {name: numbers[column] for name, numbers in NUMBERS.items()} == {
        name: known.get(name) for name in NUMBERS
    }
    assert max(known.values()) >= LAST


def test_every_call_in_the_table_is_used() -> None:
    used = {name for make in FILTERS for rules in [make()] for name in (*rules.calls, *rules.tested)}
    assert set(NUMBERS) - used == {"fallocate", "kill", "seccomp", "socket", "unlinkat"}, (
        "used by tests, or to install a filter"
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("make", FILTERS)
def test_filters_answer_every_call_as_specified(make: type[Filter], machine: str) -> None:
    rules = make()
    for name, expected in rules.calls.items():
        if NUMBERS[name][MACHINES[machine][1]] is not None:
            assert answer(rules, machine, name) == expected
    for name in ("kill", "socket", "unlinkat"):
        assert answer(rules, machine, name) == Answer.REFUSE
    assert rules.calls["execve"] == rules.calls["ptrace"] == Answer.KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_checks_arguments(machine: str) -> None:
    rules = calls.worker()
    thread, process = 0x3D0F00, 0x1200011
    assert answer(rules, machine, "clone", thread) == Answer.ALLOW
    assert answer(rules, machine, "clone", process) == Answer.REFUSE
    read_only, cloexec, create = 0, 0o2000000, 0o100
    assert answer(rules, machine, "openat", 0, 0, read_only | cloexec) == Answer.ALLOW
    assert answer(rules, machine, "openat", 0, 0, cloexec | create) == Answer.REFUSE
    assert (
        answer(rules, machine, "ioctl", 0, 0x5401)
        == answer(rules, machine, "ioctl", 0, 0x5451)
        == Answer.ALLOW
    )
    assert answer(rules, machine, "ioctl", 0, 0x5412) == Answer.REFUSE
    assert answer(rules, machine, "prlimit64", 0) == Answer.ALLOW
    assert answer(rules, machine, "prlimit64", 1) == Answer.REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_other_abis_and_unknown_numbers(machine: str) -> None:
    arch, column, _ = MACHINES[machine]
    program = calls.worker().program(machine)
    assert program is not None and len(program) // 8 <= 4096
    read = NUMBERS["read"][column] or 0
    assert run(program, read, arch) == Answer.ALLOW
    assert run(program, read, 0x40000003) == Answer.KILL, "a call of 32-bit x86"
    assert run(program, LAST + 1, arch) == Answer.UNKNOWN
    assert run(program, 0x4000_0000 | read, arch) == Answer.UNKNOWN, "a call of x32"


def test_unknown_machine_has_no_filter() -> None:
    assert calls.worker().program("riscv64") is None
