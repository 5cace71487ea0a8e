"""Counts the system calls of a program's main thread between marks that it sets, with ptrace."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from errno import EINVAL

from aicirt.sandbox.seccomp import NUMBERS

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
_TRACEME, _SYSCALL, _SETOPTIONS, _SYSCALL_INFO = 0, 24, 0x4200, 0x420E
#: PTRACE_O_TRACESYSGOOD and PTRACE_O_EXITKILL
_OPTIONS = 1 | 1 << 20
#: signal of a stop at a system call with these options
_STOP = signal.SIGTRAP | 0x80
_ENTRY = 1
_NAMES = {pair[platform.machine() == "aarch64"]: name for name, pair in NUMBERS.items()}

#: sets a mark: a system call that nothing else makes
mark = os.getppid
_MARK = "getppid"


class _Info(ctypes.Structure):
    """The struct ptrace_syscall_info; `number` is the result when the call ends."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("_pad", ctypes.c_uint8 * 3),
        ("_arch", ctypes.c_uint32),
        ("_pointers", ctypes.c_uint64 * 2),
        ("number", ctypes.c_int64),
        ("_arguments", ctypes.c_uint64 * 8),
    )


def be_traced() -> None:
    """Lets `count` trace this process from here on. Raises OSError if the system forbids that."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def count(command: Sequence[str]) -> tuple[list[Counter[str]], str]:
    """Runs a Python program that calls `be_traced`; returns its calls by name between marks, and its output.

    Leaves out calls that fail with EINVAL, with which the C library finds the size of a set of processors.
    """
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as program:
        found: list[Counter[str]] = []
        try:
            _trace(program.pid, found)
            assert program.stdout is not None
            return found, program.stdout.read()
        finally:
            program.kill()


def _trace(pid: int, found: list[Counter[str]]) -> None:
    """Counts until the program ends; raises AssertionError if it fails or is not traced."""
    name, status = "", _wait(pid)
    if os.WIFSTOPPED(status):
        _ptrace(_SETOPTIONS, pid, 0, _OPTIONS)
    while os.WIFSTOPPED(status):
        stop = os.WSTOPSIG(status)
        if stop == _STOP:
            info = _Info()
            _ptrace(_SYSCALL_INFO, pid, ctypes.sizeof(info), ctypes.addressof(info))
            if info.op == _ENTRY:
                name = _NAMES.get(info.number, str(info.number))
            elif name == _MARK:
                found.append(Counter())
            elif found and info.number != -EINVAL:
                found[-1][name] += 1
        _ptrace(_SYSCALL, pid, 0, 0 if stop in (_STOP, signal.SIGSTOP) else stop)
        status = _wait(pid)
    assert status == 0, f"the traced program ended with status {status}"


def _wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")
