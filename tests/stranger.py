"""Runs code as another user of the machine, for tests of attacks."""

from __future__ import annotations

import os
import pwd
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

STRANGER = pwd.getpwnam("nobody")
#: for tests that act as another user, which only root can
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


def let_through(folder: Path) -> None:
    """Lets another user traverse a folder and its parents."""
    for above in (folder, *folder.parents):
        mode = above.stat().st_mode
        if mode & 0o011 != 0o011:
            above.chmod(mode | 0o011)


def start_as_stranger(work: Callable[[], None]) -> int:
    """Calls `work` in a process of another user; returns the process id, for `wait_for`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setgroups([])
        os.setresgid(STRANGER.pw_gid, STRANGER.pw_gid, STRANGER.pw_gid)
        os.setresuid(STRANGER.pw_uid, STRANGER.pw_uid, STRANGER.pw_uid)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait_for(pid: int) -> None:
    """Waits for the end of such a process, and checks that it succeeded."""
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "see its traceback"


def as_stranger(work: Callable[[], None]) -> None:
    """Calls `work` as another user and waits for its end."""
    wait_for(start_as_stranger(work))
