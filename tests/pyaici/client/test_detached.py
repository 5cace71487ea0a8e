"""A detached daemon is not a child of its owner. It shuts down when the owner and its children are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lab.system.processes import family, left_behind, private_daemons
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime

ROOT = Path(__file__).resolve().parents[3]
OWNER = """
from pyaici.client.control import Daemon
with Daemon(workers=1, detached=True) as daemon:
    print(daemon.pid, flush=True)
    input()
"""


def test_a_detached_daemon_works_like_any_other() -> None:
    with Daemon(workers=1, detached=True) as daemon:
        assert daemon.pid not in family(os.getpid())
        assert daemon.pid in private_daemons({os.getpid(): 0})
        members = family(daemon.pid)  # not all private daemons: other tests may have started some
        with Runtime(daemon.socket_path) as runtime:
            assert runtime.health() and runtime.is_connected()
            daemon.close()
            assert not runtime.is_connected()
    assert not left_behind(members)


def test_a_detached_daemon_ends_when_its_owner_and_children_are_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert owner.stdout is not None and owner.stdin is not None
    pid = int(owner.stdout.readline())
    members = family(pid)
    for child in family(owner.pid):
        os.kill(child, signal.SIGKILL)
    owner.communicate()
    assert len(members) > 1
    assert not left_behind(members)
