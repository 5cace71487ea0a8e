"""`aici serve` in a process of its own, on a free port of this machine alone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ADDRESS = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
#: a start takes seconds, but the model may have to be fetched
_START_SECONDS = 600


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Its address; it ends with the block. Raises RuntimeError, with its log, if it does not start."""
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
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while (found := _ADDRESS.search(log.read_text(errors="replace"))) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')}")
                time.sleep(0.1)
            yield found[1]
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
