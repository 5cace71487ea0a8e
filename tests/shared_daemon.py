"""Lets playgrounds, replays, checkers and texts of a process of pytest share a daemon.

So does `Runtime(workers=1, limits=PATIENT)` in a fixture whose tests leave the daemon and its worker alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from pyaici.client import runtime
from pyaici.client.control import Daemon
from pyaici.testing.playground import PATIENT

#: variables that a daemon does not read
_OF_CLIENTS = {"AICI_SOCKET", "AICI_SERVER", "AICI_TOKEN"}


class _Shared:
    """The part of a `Daemon` that a `Runtime` uses; it goes on when the runtime is closed."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket_path = daemon.socket_path
        self.pid = daemon.pid
        self.log = daemon.log

    def close(self) -> None:
        """Does nothing."""


def _environment() -> dict[str, str]:
    """Returns the variables by which daemons differ."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_CLIENTS}
    return {name: kept[name] for name in kept if name.startswith(("AICI_", "XDG_", "HOME", "TMPDIR"))}


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Connects runtimes with one worker and the limits of playgrounds to one daemon, if nothing differs."""
    usual, daemons = _environment(), list[Daemon]()

    def start(
        *, workers: int | None = None, limits: Mapping[str, int] | None = None, store: Path | None = None
    ) -> Daemon | _Shared:
        if (workers, limits, store) != (1, PATIENT, None) or _environment() != usual:
            return Daemon(workers=workers, limits=limits, store=store)
        if not daemons or daemons[-1]._process is None or daemons[-1]._process.poll() is not None:
            daemons.append(Daemon(workers=1, limits=PATIENT))
        return _Shared(daemons[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "Daemon", start)
        # without limits: $AICI_LIMITS has the same ones in tests
        patch.setattr("pyaici.scripting.checker.Runtime", partial(runtime.Runtime, limits=PATIENT))
        patch.setattr("pyaici.testing.texts.Runtime", partial(runtime.Runtime, limits=PATIENT))
        try:
            yield
        finally:
            for daemon in daemons:
                daemon.close()
