"""`aici serve` in a separate process, on a free port of the loopback interface."""

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
#: a start takes seconds, but the model may have to be downloaded
_START_SECONDS = 600


@dataclass(frozen=True)
class ServerProcess:
    """A running server."""

    #: its URL
    address: str
    pid: int
    #: the file with its output
    log: Path


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Runs a server until the block ends and yields its address. Raises the errors of `server_process`."""
    with server_process(*options) as server:
        yield server.address


@contextmanager
def server_process(*options: str, temporary: Path | None = None) -> Iterator[ServerProcess]:
    """Runs a server until the block ends.

    `temporary` is the folder for temporary files of the server and of its daemon. Raises RuntimeError with
    the server's log if it does not start.
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
                    "--loopback-apart",  # clients have addresses of their own
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
