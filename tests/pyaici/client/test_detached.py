"""A daemon that is no child of its owner ends in order when the owner's whole family is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from tests.processes import family, left_behind, private_daemons

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
from pyaici.client.daemon import Daemon
with Daemon(workers=1, detached=True) as daemon:
    print(daemon.pid, flush=True)
    input()
"""


def test_it_is_used_like_any_other() -> None:
    with Daemon(workers=1, detached=True) as daemon:
        assert daemon.pid not in family(os.getpid())
        assert daemon.pid in private_daemons({os.getpid(): 0})
        members = family(daemon.pid)  # other tests have private daemons of this process as well
        with Runtime(daemon.socket_path) as runtime:
            assert runtime.health() and runtime.is_connected()
            daemon.close()
            assert not runtime.is_connected()
    assert not left_behind(members)


def test_its_owners_family_is_killed() -> None:
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
