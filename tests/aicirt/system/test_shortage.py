"""Messages for errors of the operating system name a remedy."""

from __future__ import annotations

import errno
import os

import pytest

from aicirt.system.shortage import describe, is_shortage


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "writable"),
        (errno.EAGAIN, "ulimit -u"),
        (errno.ENOMEM, "memory"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
    ],
)
def test_shortage_errors_name_a_remedy(code: int, remedy: str) -> None:
    error = OSError(code, os.strerror(code), "/a/file")
    assert is_shortage(error)
    assert os.strerror(code) in describe(error) and "/a/file" in describe(error) and remedy in describe(error)


def test_other_errors_are_described_unchanged() -> None:
    error = OSError(errno.EBADF, "Bad file descriptor")
    assert not is_shortage(error) and describe(error) == str(error)
    assert describe(ValueError("no number")) == "no number"
