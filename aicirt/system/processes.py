"""Processes: their environment and title, children, and another user as which untrusted code runs."""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aicirt.contract.errors import RuntimeFailure
from aicirt.sandbox import kernel
from aicirt.system.files import Descriptor
from aicirt.system.shortage import describe
from aicirt.system.silence import finish

#: advice on how to allow a process to start others that become another user
CURE = "start aicirt as root, or with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL"
_ROOT = str(Path(__file__).resolve().parents[2])
#: variables passed to a child if they are set: those that Python and the C library read, and locations of our
#: files. Others may hold the engine's secrets, such as tokens, which hostile code in a child must not find
_PASSED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
        *("AICI_STORE", "AICI_SOCKET", "AICI_LIMITS", "AICI_SINGLE_USER"),
    }
)
_PASSED_PREFIXES = ("LC_", "PYTHON")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class User:
    """The name and id of a user, and the id of the user's primary group."""

    name: str
    uid: int
    gid: int

    @classmethod
    def find(cls, name: str) -> User:
        """Looks up a user. Raises RuntimeFailure for an unknown user, for root, and for the current user."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise RuntimeFailure(
                f"there is no user {name!r}: create the user (useradd --system {name}), or name another"
            ) from None
        if entry.pw_uid in (0, os.getuid()):
            whose = "root" if entry.pw_uid == 0 else "aicirt"
            raise RuntimeFailure(
                f"workers that run as {name} can do what {whose} can do: name a user who owns nothing else, "
                "or omit --worker-user"
            )
        return cls(name, entry.pw_uid, entry.pw_gid)

    def require(self) -> None:
        """Raises RuntimeFailure if this process may not start others that become this user."""
        if problem := self.problem():
            raise RuntimeFailure(
                f"workers cannot run as {self.name}: {problem}: {CURE}, or omit --worker-user"
            )

    def problem(self) -> str:
        """Returns why this process may not start others that become this user; empty if it may."""
        command = [sys.executable, "-P", "-m", "aicirt.system.processes", str(self.uid), str(self.gid)]
        try:
            tried = finish(command, env=child_environment())
        except (OSError, subprocess.TimeoutExpired) as error:
            return describe(error)
        if tried.returncode == 0:
            return ""
        return tried.stdout.strip() or f"the attempt ended with status {tried.returncode}"


def become(uid: int, gid: int) -> None:
    """Gives up this process's user, groups and capabilities for ever, while the process has one thread.

    Call this after the process has opened or imported what it needs from the old user's files, and before
    `sandbox.die_with`: a change of user clears the signal for the parent's death. Raises PermissionError.
    """
    for encoding in ("ascii", "latin-1", "utf-8"):  # each is a module that is imported on first use
        codecs.lookup(encoding)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()  # a process that was not root keeps its capabilities
    # otherwise root would own the process's files in /proc, and the Wasm engine needs one of them;
    # `sandbox.enter` undoes this later
    kernel.set_dumpable(True)


if __name__ == "__main__":
    try:
        become(int(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        print(error.strerror)
        raise SystemExit(1) from None


def child_environment() -> dict[str, str]:
    """Returns the environment for a child process, without secrets from the engine's environment.

    The child imports this same package, even if it is not installed, and its libraries start no threads and
    reserve no memory for threads.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    inherited = passed.get("PYTHONPATH")
    path = os.pathsep.join([_ROOT, inherited]) if inherited else _ROOT
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**passed, **one_thread, "PYTHONPATH": path}


def set_title(name: str, command: Sequence[str]) -> None:
    """Shows a name of at most 15 bytes in ps and top, and a command as far as the original one has room."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    # arg_start and arg_end of proc_pid_stat(5); the fields follow the last ')'
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = "\0".join(command).encode()[: end - start - 1]  # the last byte stays 0, as the kernel expects
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, line, len(line))


def adopt_orphans(adopt: bool) -> None:
    """Sets whether descendants of this process become its children when their own parents end."""
    kernel.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def _ignore(_: int) -> None:
    pass


class Child:
    """A child process that only this object waits for."""

    def __init__(self, pid: int, ended: Callable[[int], None] = _ignore) -> None:
        """`ended` is called with the exit status, negative for a signal.

        Ends the process and raises OSError if it cannot be watched.
        """
        self.pid = pid
        #: the exit status, negative for a signal; None before `wait_for_exit`
        self.status: int | None = None
        #: CPU time in seconds, once the process has ended
        self.cpu_s = 0.0
        self._ended = ended
        try:
            #: readable when the process has ended
            self.pidfd = Descriptor(os.pidfd_open(pid))
        except OSError:
            os.kill(pid, signal.SIGKILL)
            self.wait_for_exit()
            raise

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd.fd, signal.SIGKILL)

    def wait_for_exit(self) -> int:
        """Waits for the end; returns the exit status, negative for a signal."""
        if self.status is None:
            _, status, usage = os.wait4(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            self._ended(self.status)
        return self.status


#: starts a program with arguments. Its descriptors are copies of the given ones, numbered from a given number
#: on, and standard streams below that number. Raises RuntimeFailure or OSError if there is no room
Start = Callable[[str, Sequence[str], Sequence[int], int], Awaitable[Child]]
