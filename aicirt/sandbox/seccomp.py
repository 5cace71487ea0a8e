"""Seccomp: a filter of system calls, as a program for the kernel's classic BPF machine.

Calls are named; `aicirt.sandbox.numbers` knows their numbers. What the kernel answers always in the same way,
whatever the arguments, it keeps in a bitmap (since Linux 5.11), so that such calls cost nothing.
Format: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from aicirt.sandbox import kernel
from aicirt.sandbox.numbers import LAST, NUMBERS

#: SECCOMP_SET_MODE_FILTER, and SECCOMP_FILTER_FLAG_SPEC_ALLOW: kernels before 5.16 turn features of the
#: processor off for a process with a filter, which slows guests down; wasmtime has mitigations of its own
_SET_FILTER, _SPEC_ALLOW = 1, 4
#: machine -> AUDIT_ARCH_*, column of NUMBERS
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: classic BPF: load a word, jump if equal, jump if greater, and with a constant, return
_LOAD, _EQUAL, _GREATER, _AND, _RETURN = 0x20, 0x15, 0x25, 0x54, 0x06
#: offsets in struct seccomp_data; of an argument its low half, which has all that is looked at here
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_EPERM, _ENOSYS = 1, 38


class Answer(IntEnum):
    """What the kernel does with a call: SECCOMP_RET_*."""

    KILL = 0x8000_0000
    REFUSE = 0x0005_0000 | _EPERM
    #: as an older kernel does, so that the C library takes another call
    UNKNOWN = 0x0005_0000 | _ENOSYS
    ALLOW = 0x7FFF_0000


@dataclass(frozen=True, slots=True)
class Argument:
    """A test that holds if the bits `mask` of the argument `index` are one of `values`."""

    index: int
    values: tuple[int, ...]
    mask: int = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Filter:
    """Answers of a process's system calls; those that are nowhere get `other`."""

    calls: Mapping[str, Answer]
    #: calls that are allowed if all of their tests hold, and refused otherwise
    tested: Mapping[str, tuple[Argument, ...]]
    other: Answer = Answer.REFUSE

    def program(self, machine: str) -> bytes | None:
        """Returns the filter as struct sock_filter[]; None for a machine whose numbers are not known."""
        if machine not in _MACHINES:
            return None
        arch, column = _MACHINES[machine]
        code = [
            (_LOAD, 0, 0, _ARCH),
            (_EQUAL, 1, 0, arch),
            (_RETURN, 0, 0, Answer.KILL),  # 32-bit calls have other numbers
            (_LOAD, 0, 0, _NUMBER),
            (_GREATER, 0, 1, LAST),  # newer than our table, or of the x32 interface
            (_RETURN, 0, 0, Answer.UNKNOWN),
        ]
        for name, tests in self.tested.items():
            if (number := NUMBERS[name][column]) is not None:
                checks = [line for test in tests for line in _check(test)]
                code += [(_EQUAL, 0, len(checks) + 1, number), *checks, (_RETURN, 0, 0, Answer.ALLOW)]
        for name, answer in self.calls.items():
            if (number := NUMBERS[name][column]) is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
        code.append((_RETURN, 0, 0, self.other))
        return b"".join(struct.pack("=HBBI", *line) for line in code)


def _check(test: Argument) -> list[tuple[int, int, int, int]]:
    """Refuses the call if the test does not hold; else goes on behind."""
    values = [
        (_EQUAL, len(test.values) - number, 0, value & test.mask) for number, value in enumerate(test.values)
    ]
    return [
        (_LOAD, 0, 0, _ARGUMENTS + 8 * test.index),
        (_AND, 0, 0, test.mask),
        *values,
        (_RETURN, 0, 0, Answer.REFUSE),
    ]


def install(rules: Filter) -> bool:
    """Filters the calls of this thread and all that it makes, for ever; needs no_new_privs.

    Returns False where the kernel has no filters, or the numbers of the machine's calls are not known.
    """
    program = rules.program(platform.machine())
    if program is None:
        return False
    try:
        load(program)
    except OSError:
        return False
    return True


def load(program: bytes) -> None:
    """Has the kernel run struct sock_filter[] for each call. Raises OSError; KeyError on other machines."""
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    number = NUMBERS["seccomp"][_MACHINES[platform.machine()][1]]
    kernel.call(number or 0, _SET_FILTER, _SPEC_ALLOW, header)


def answers(names: Iterable[str], answer: Answer) -> dict[str, Answer]:
    """Returns the same answer for all of these calls."""
    return dict.fromkeys(names, answer)
