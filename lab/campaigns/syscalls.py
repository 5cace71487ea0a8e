"""Denies system calls to this process and its children with a seccomp filter, to simulate older kernels."""

from __future__ import annotations

import platform
import struct

from aicirt.sandbox import kernel, seccomp

_PR_SET_NO_NEW_PRIVS = 38
#: offsets in struct seccomp_data: number of the call, low half of its second argument
_NUMBER, _SECOND = 0, 24
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
#: create_ruleset, add_rule, restrict_self: the same numbers on all architectures
LANDLOCK = (444, 445, 446)
_IOCTL = {"x86_64": 16, "aarch64": 29}


def deny(numbers: tuple[int, ...], errno: int, *, second: int | None = None) -> None:
    """Makes these system calls fail with `errno`, for the rest of the process.

    With `second`, only calls with this second argument fail. Raises OSError if the filter cannot be loaded.
    """
    code: list[tuple[int, int, int, int]] = []
    for number in numbers:
        rest = 1 if second is None else 3
        code += [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, rest, number)]
        if second is not None:
            code += [(_LOAD, 0, 0, _SECOND), (_EQUAL, 0, 1, second)]
        code.append((_RETURN, 0, 0, _ERRNO | errno))
    code.append((_RETURN, 0, 0, _ALLOW))
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    seccomp.load(b"".join(struct.pack("=HBBI", *line) for line in code))


def deny_ioctl(request: int, errno: int) -> None:
    """Makes one request of ioctl fail, see `deny`."""
    deny((_IOCTL[platform.machine()],), errno, second=request)
