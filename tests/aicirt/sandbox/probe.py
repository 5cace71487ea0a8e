"""Enters a sandbox and tries what it still permits.

``probe.py PROFILE SECRET PID SEMAPHORE`` tries one action after the other and prints their results as JSON.
Its arguments are a file and a process outside the sandbox. The working directory must
contain a file `module`.
``probe.py PROFILE CALL`` makes one system call, with zeros as its arguments, and prints its error.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from aicirt import sandbox
from aicirt.ipc.ring import Doorbell
from aicirt.sandbox import kernel
from aicirt.sandbox.seccomp import NUMBERS

PROFILES = {profile.name: profile for profile in (sandbox.WORKER, sandbox.BUILDER, sandbox.COMPILER)}
COLUMNS = {"x86_64": 0, "aarch64": 1}
TIOCSTI = 0x5412
#: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
PUNCH_HOLE = 3


def try_all(profile: str, secret: Path, outside: int) -> None:
    results: dict[str, object] = {}

    def attempt(action: str, function: Callable[[], object]) -> None:
        try:
            results[action] = str(function())
        except OSError as error:
            results[action] = errno.errorcode[error.errno] if error.errno else "OSError"

    open_before = secret.open()
    listener = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    bell = Doorbell.create()
    shared = os.memfd_create("shared")
    os.ftruncate(shared, mmap.PAGESIZE)
    mapped = mmap.mmap(shared, mmap.PAGESIZE)
    fallocate = NUMBERS["fallocate"][COLUMNS[platform.machine()]] or 0
    sandbox.die_with(os.getppid())
    layers = sandbox.enter(PROFILES[profile])

    def in_a_thread() -> str:
        thread = threading.Thread(target=lambda: attempt("secret in thread", secret.read_text))
        try:
            thread.start()
        except RuntimeError as error:
            raise PermissionError(errno.EPERM, str(error)) from error
        thread.join()
        return "done"

    def ring() -> bool:
        bell.ring()
        return bell.wait_for_ring(0)

    attempt("module", lambda: Path("module").read_text())
    attempt("write code", lambda: Path("new").write_text("x"))
    attempt("change code", lambda: os.open("module", os.O_WRONLY))
    attempt("empty code", lambda: os.open("module", os.O_RDONLY | os.O_TRUNC))
    attempt("remove code", lambda: Path("module").unlink())
    attempt("secret", secret.read_text)
    attempt("list", lambda: list(secret.parent.iterdir()))
    attempt("open before", open_before.read)
    attempt("library", lambda: __import__("colorsys").rgb_to_hsv(0, 0, 1)[2])
    attempt("doorbell", ring)
    attempt("new shared memory", lambda: os.open("/dev/shm/aici-test-layers", os.O_CREAT | os.O_RDWR))
    attempt("memory file", lambda: os.write(os.memfd_create("x"), b"12"))
    attempt("shrink", lambda: os.ftruncate(shared, 0))
    attempt("hole", lambda: kernel.call(fallocate, shared, PUNCH_HOLE, 0, mmap.PAGESIZE))
    attempt("hole in a mapping", lambda: mapped.madvise(mmap.MADV_REMOVE))
    attempt("advice", lambda: mapped.madvise(mmap.MADV_DONTNEED))
    attempt("descriptor", lambda: os.dup(0))
    attempt("thread", in_a_thread)
    attempt("process", os.fork)
    attempt("program", lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0))
    attempt("tcp", lambda: socket.socket().connect(listener.getsockname()))
    attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", listener.getsockname()))
    attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
    attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
    attempt("abstract socket", lambda: unix.connect(f"\0aici-test-{outside}"))
    attempt("signal", lambda: os.kill(outside, 0))
    attempt("limits of another", lambda: resource.prlimit(outside, resource.RLIMIT_NOFILE))
    attempt("processor of another", lambda: os.sched_setaffinity(outside, {0}))
    attempt("priority of another", lambda: os.setpriority(os.PRIO_PROCESS, outside, 19))
    attempt("own processor", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
    attempt("own memory", lambda: os.open("/proc/self/mem", os.O_RDONLY))
    attempt("etc", lambda: Path("/etc/passwd").read_text())
    attempt("type into a terminal", lambda: fcntl.ioctl(unix, TIOCSTI, b"x"))
    attempt("owner of signals", lambda: fcntl.fcntl(unix, fcntl.F_SETOWN, outside))
    attempt("core", lambda: resource.getrlimit(resource.RLIMIT_CORE))
    results["layers"] = layers.to_wire()
    sys.stdout.write(json.dumps(results))


def call(profile: str, name: str) -> None:
    sandbox.enter(PROFILES[profile])
    number = NUMBERS[name][COLUMNS[platform.machine()]]
    try:
        kernel.call(number or 0, 0, 0, 0, 0, 0, 0)
    except OSError as error:
        sys.stdout.write(errno.errorcode[error.errno or 0])


if __name__ == "__main__":
    if len(sys.argv) == 3:
        call(*sys.argv[1:])
    else:
        try_all(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
