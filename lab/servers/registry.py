"""Debian's docker-registry in a separate process, on a free port of the loopback interface."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.system.waiting import PATIENCE


@contextmanager
def running_registry(folder: Path, more: str = "") -> Iterator[str]:
    """Runs a registry until the block ends; yields its host and port.

    `more`: lines of its configuration. Raises FileNotFoundError if it is not installed, and RuntimeError with
    its log if it does not start.
    """
    if (program := shutil.which("docker-registry")) is None:
        raise FileNotFoundError("docker-registry is not installed: scripts/servers.sh fetches it")
    data = folder / "data"
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {data}}}}}\n"
        f"http: {{addr: '127.0.0.1:0', secret: of-a-test}}\n{more}"
    )
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            until = time.monotonic() + PATIENCE
            while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"docker-registry does not start:\n{log.read_text()}")
                time.sleep(0.02)
            yield found[1]
        finally:
            process.kill()
            process.wait()
