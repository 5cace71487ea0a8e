"""A fork server with one more program, which prints what it has inherited and ends as it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from aicirt.fork_server.__main__ import PROGRAMS, main

NAME = "tests.probe"


def probe(arguments: list[str]) -> int:
    """Prints a JSON object, and waits for the end of its input.

    Then returns the status `arguments[0]`; if that is negative, kills itself by this signal.
    """
    names = [file.name for file in Path("/proc/self/fd").iterdir()]
    files = {name: Path(f"/proc/self/fd/{name}") for name in names}
    found = {
        # without the descriptor that has read the folder
        "files": {name: str(file.readlink()) for name, file in files.items() if file.is_symlink()},
        "environment": dict(os.environ),
        "ignored": [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "parent": os.getppid(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "title": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        "name": Path("/proc/self/comm").read_text().strip(),
        "layout": next(line for line in Path("/proc/self/maps").read_text().splitlines() if "libc" in line),
    }
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    status = int(arguments[0])
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


PROGRAMS[NAME] = probe
if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
