"""`aici serve` in a process of its own, on a free port of this machine alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ADDRESS = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
#: a start takes seconds, but the model may have to be fetched
_START_SECONDS = 600


@dataclass(frozen=True)
class ServerProcess:
    """A running server."""

    #: its URL
    address: str
    pid: int
    #: the file with what it has said
    log: Path


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Yields the server's address, and stops it with the block. Raises what `server_process` raises."""
    with server_process(*options) as server:
        yield server.address


@contextmanager
def server_process(*options: str, temporary: Path | None = None) -> Iterator[ServerProcess]:
    """Starts a server and stops it with the block.

    `temporary`: folder for its temporary files, those of its daemon included. Raises RuntimeError, with its
    log, if it does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pyaici.cli",
                    "serve",
                    "--port=0",
                    "--requests-per-minute=0",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | ({"TMPDIR": str(temporary)} if temporary else {}),
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while (found := _ADDRESS.search(log.read_text(errors="replace"))) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')}")
                time.sleep(0.1)
            yield ServerProcess(found[1], process.pid, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
