"""Memory of a server and of all processes that it starts, over time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.system.processes import Family, command_line, family, private_daemons

#: word of the command line -> kind of process
_KINDS = {
    b"aicirt.worker": "workers",
    b"aicirt.modules.compiler": "compilers",
    b"aicirt.fork_server": "fork server",
    b"aicirt": "daemon",
}


def resident(pid: int) -> int:
    """Returns the resident bytes without files, shared memory included; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def proportional(pid: int) -> int:
    """Returns the resident bytes, of shared ones its part; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


class MemoryWatch:
    """Measures all processes of a server periodically. Use it as a context manager."""

    def __init__(
        self,
        server: int,
        kinds: Mapping[int, str] | None = None,
        measure: Callable[[int], int] = resident,
        seconds: float = 0.25,
    ) -> None:
        """`server`: its pid. `kinds`: kinds of known processes, by pid; by default the server is "http".

        `measure`: returns the bytes of a process. `seconds`: between two measurements.
        """
        self._server = server
        self._known = kinds or {server: "http"}
        self._measure = measure
        self._seconds = seconds
        #: all processes so far
        self.members: Family = {}
        #: of each measurement, the MiB by kind of process, and of "all" together
        self.samples: list[dict[str, float]] = []
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
            size = self._measure(pid)
            found[self._kind(pid)] += size
            found["all"] += size
        self.samples.append({kind: nbytes / (1 << 20) for kind, nbytes in found.items()})
        return self.samples[-1]

    @property
    def by_kind(self) -> dict[str, list[float]]:
        """The measurements of each kind of process."""
        kinds = sorted({kind for sample in self.samples for kind in sample})
        return {kind: [sample.get(kind, 0.0) for sample in self.samples] for kind in kinds}

    def workers(self) -> set[int]:
        """Returns the pids of the workers and the builder."""
        return {pid for pid in family(self._server) if self._kind(pid) == "workers"}

    def _kind(self, pid: int) -> str:
        if pid in self._known:
            return self._known[pid]
        words = command_line(pid).split(b"\0")
        return next((kind for word, kind in _KINDS.items() if word in words), "others")

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            self.look()
