"""Entry point of the fork server, `python -m aicirt.fork_server`, which only the supervisor starts.

It imports what workers, the builder and compilers need, and then forks one for each request: importing takes
most of the time and memory of a new process. It has one thread, no Wasm engine and no sandbox. It reads
nothing but requests of the supervisor, and its environment has no secrets, so that its forks inherit none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from aicirt import sandbox
from aicirt.modules import compiler
from aicirt.system.processes import set_title
from aicirt.worker import process as worker

#: by name: a function that runs the program with arguments and returns the exit status
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "aicirt.worker": worker.main,
    "aicirt.modules.compiler": compiler.main,
}
_MAX_REQUEST, _MAX_FILES = 1 << 18, 16


def main(control_fd: str, parent: str) -> int:
    """Forks at each request until the supervisor closes the socket. Returns the exit status.

    A request is JSON, [program, arguments, number of the first descriptor], with a pipe and the descriptors.
    The answer is JSON, [process id, error number]. The process begins when it reads a byte from the pipe.
    """
    sandbox.die_with(int(parent))
    for module in ("tokenizers", "encodings.ascii", "encodings.latin_1"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("a library has started a thread, which forks would lack")
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all these objects
    try:
        with socket.socket(fileno=int(control_fd)) as control:
            control.send(b"ready")
            while True:
                message, fds, flags, _ = socket.recv_fds(control, _MAX_REQUEST, _MAX_FILES)
                if not message:
                    return 0
                program, arguments, first = json.loads(message)
                pid = error = 0
                try:
                    if flags & socket.MSG_CTRUNC:  # descriptors are missing
                        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                    pid = _fork()
                    if not pid:
                        break
                except OSError as problem:
                    error = problem.errno or errno.EAGAIN
                for fd in fds:
                    os.close(fd)
                control.send(json.dumps([pid, error]).encode())
    except ConnectionError:  # the supervisor has ended without reading what was sent
        return 0
    _become(program, arguments, fds, first)


def _fork() -> int:
    """Forks a process that becomes the supervisor's child; returns its id, and 0 in that process.

    The process between the two ends at once: the kernel then gives its child to the supervisor, which adopts
    orphans. So the supervisor alone can wait for it, and it ends with the supervisor, not with this process.
    """
    read, write = os.pipe()
    try:
        between = os.fork()
        if not between:
            try:
                pid = os.fork()
            except OSError as error:
                os._exit(error.errno or 1)
            if not pid:
                return 0
            os.write(write, b"%d" % pid)
            os._exit(0)
        if status := os.waitstatus_to_exitcode(os.waitpid(between, 0)[1]):
            raise OSError(abs(status), os.strerror(abs(status)))
        return int(os.read(read, 32))
    finally:
        os.close(read)
        os.close(write)


def _become(program: str, arguments: list[str], fds: Sequence[int], first: int) -> NoReturn:
    """Turns this fork into the requested program, runs it, and ends with its exit status."""
    begin, *files = fds
    if not os.read(begin, 1):  # the supervisor wants the process no more, or has ended
        os._exit(1)
    above = max(3, first + len(files))
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in files]
    for number, fd in enumerate(high, first):
        os.dup2(fd, number)
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))
    set_title(f"aicirt.{program.rpartition('.')[2]}", [program, *arguments])
    status = 1
    try:
        status = PROGRAMS[program](arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        # without freeing every object, which would copy all pages: 20 ms, more than a small module needs
        os._exit(status)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
