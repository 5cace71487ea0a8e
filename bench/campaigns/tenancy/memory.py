"""Peak memory of a server and of all processes that it starts."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from tests.processes import Family, command_line, family, private_daemons

_SAMPLE_SECONDS = 0.25
#: word of the command line -> kind of process
_KINDS = {b"aicirt.worker": "workers", b"aicirt.modules.compiler": "compilers", b"aicirt": "daemon"}


class MemoryWatch:
    """Measures all processes of a server periodically. Use it as a context manager."""

    def __init__(self, server: int) -> None:
        self._server = server
        #: all processes so far
        self.members: Family = {}
        #: peak MiB by kind of process, and of "all" together
        self.peak: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> dict[str, float]:
        """Measures once; returns the MiB by kind of process, and of "all" together."""
        members = family(self._server)
        members |= private_daemons(members)
        self.members |= members
        found: Counter[str] = Counter()
        for pid in members:
            size = resident(pid)
            found[self._kind(pid)] += size
            found["all"] += size
        sizes = {kind: nbytes / (1 << 20) for kind, nbytes in found.items()}
        for kind, mib in sizes.items():
            self.peak[kind] = max(self.peak.get(kind, 0.0), mib)
        return sizes

    def workers(self) -> set[int]:
        """Returns the pids of the workers and the builder."""
        return {pid for pid in family(self._server) if self._kind(pid) == "workers"}

    def _kind(self, pid: int) -> str:
        if pid == self._server:
            return "http"
        words = command_line(pid).split(b"\0")
        return next((kind for word, kind in _KINDS.items() if word in words), "others")

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.look()


def resident(pid: int) -> int:
    """Returns the resident bytes without files, shared memory included; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
