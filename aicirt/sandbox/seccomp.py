"""seccomp: a filter for system calls, compiled to a classic BPF program."""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from aicirt.sandbox import kernel

#: the largest number in the kernel of this table (6.18): larger numbers are unknown here
LAST = 471
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "access": (21, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "arch_prctl": (158, None),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "delete_module": (176, 106),
    "dup": (32, 23),
    "execve": (59, 221),
    "execveat": (322, 281),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fadvise64": (221, 223),
    "fallocate": (285, 47),
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "fsync": (74, 82),
    "futex": (202, 98),
    "getcpu": (309, 168),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpeername": (52, 205),
    "getpgrp": (111, None),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpriority": (140, 141),
    "getrandom": (318, 278),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "memfd_create": (319, 279),
    "mincore": (27, 232),
    "mmap": (9, 222),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "msync": (26, 227),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "poll": (7, None),
    "ppoll": (271, 73),
    "prctl": (157, 167),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "preadv2": (327, 286),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pselect6": (270, 72),
    "ptrace": (101, 117),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "reboot": (169, 142),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "sched_getaffinity": (204, 123),
    "sched_getattr": (315, 275),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_yield": (24, 124),
    "seccomp": (317, 277),
    "select": (23, None),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "setns": (308, 268),
    "setsockopt": (54, 208),
    "settimeofday": (164, 170),
    "shutdown": (48, 210),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysinfo": (99, 179),
    "tgkill": (234, 131),
    "time": (201, None),
    "timer_create": (222, 107),
    "timer_delete": (226, 111),
    "timer_getoverrun": (225, 109),
    "timer_gettime": (224, 108),
    "timer_settime": (223, 110),
    "times": (100, 153),
    "umount2": (166, 39),
    "uname": (63, 160),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "write": (1, 64),
    "writev": (20, 66),
}


#: SECCOMP_SET_MODE_FILTER, and SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it, kernels before 5.16 disable
#: processor features for a process with a filter, which slows guests; wasmtime has its own mitigations
_SET_FILTER, _SPEC_ALLOW = 1, 4
#: machine -> AUDIT_ARCH_*, column of NUMBERS
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: classic BPF: load a word, jump if equal, jump if greater, AND with a constant, return
_LOAD, _EQUAL, _GREATER, _AND, _RETURN = 0x20, 0x15, 0x25, 0x54, 0x06
#: offsets in struct seccomp_data; of an argument, only the low half is tested
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_EPERM, _ENOSYS = 1, 38


class Answer(IntEnum):
    """The kernel's answers to a call: SECCOMP_RET_*."""

    KILL = 0x8000_0000
    REFUSE = 0x0005_0000 | _EPERM
    #: fails like on an older kernel, so that the C library uses another call
    UNKNOWN = 0x0005_0000 | _ENOSYS
    ALLOW = 0x7FFF_0000


@dataclass(frozen=True, slots=True)
class Argument:
    """A test that passes if the bits `mask` of the argument `index` equal one of `values`."""

    index: int
    values: tuple[int, ...]
    mask: int = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Filter:
    """The answers to a process's system calls; calls that are not listed get `other`."""

    calls: Mapping[str, Answer]
    #: calls that are allowed if all of their tests pass, and refused otherwise
    tested: Mapping[str, tuple[Argument, ...]]
    other: Answer = Answer.REFUSE

    def program(self, machine: str) -> bytes | None:
        """Returns the filter as struct sock_filter[]; None for a machine whose call numbers are unknown."""
        if machine not in _MACHINES:
            return None
        arch, column = _MACHINES[machine]
        code = [
            (_LOAD, 0, 0, _ARCH),
            (_EQUAL, 1, 0, arch),
            (_RETURN, 0, 0, Answer.KILL),  # 32-bit calls have other numbers
            (_LOAD, 0, 0, _NUMBER),
            (_GREATER, 0, 1, LAST),  # newer than this table, or of the x32 ABI
            (_RETURN, 0, 0, Answer.UNKNOWN),
        ]
        for name, tests in self.tested.items():
            if (number := NUMBERS[name][column]) is not None:
                checks = [line for test in tests for line in _check_argument(test)]
                code += [(_EQUAL, 0, len(checks) + 1, number), *checks, (_RETURN, 0, 0, Answer.ALLOW)]
        for name, answer in self.calls.items():
            if (number := NUMBERS[name][column]) is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
        code.append((_RETURN, 0, 0, self.other))
        return b"".join(struct.pack("=HBBI", *line) for line in code)


def _check_argument(test: Argument) -> list[tuple[int, int, int, int]]:
    """Returns code that refuses the call if the test fails, and otherwise continues after itself."""
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
    """Filters the calls of this thread and all threads it starts, for ever; needs no_new_privs.

    Returns False if the kernel does not accept the filter, or if the machine's call numbers are unknown.
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
    """Installs struct sock_filter[] as a filter. Raises OSError; KeyError on an unknown machine."""
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    number = NUMBERS["seccomp"][_MACHINES[platform.machine()][1]]
    kernel.call(number or 0, _SET_FILTER, _SPEC_ALLOW, header)


def answers(names: Iterable[str], answer: Answer) -> dict[str, Answer]:
    """Maps each of these calls to the same answer."""
    return dict.fromkeys(names, answer)
