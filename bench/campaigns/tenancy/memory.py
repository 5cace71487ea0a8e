"""Memory of a server and of everything that it starts, at its highest."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from tests.processes import Family, command_line, family, private_daemons

_SAMPLE_SECONDS = 0.25
#: by a word of the command line
_KINDS = {b"aicirt.worker": "workers", b"aicirt.modules.compiler": "compilers", b"aicirt": "daemon"}


class MemoryWatch:
    """Looks at all processes of a server again and again. Use as a context manager."""

    def __init__(self, server: int) -> None:
        self._server = server
        #: every process that has been seen
        self.members: Family = {}
        #: MiB by kind of process, and of "all" together, each at its highest
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
        """MiB by kind of process, and of all together."""
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
        """Processes that run controllers, the builder among them."""
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
    """Bytes in memory without files; what processes share counts in each. 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
