"""Waits of a client look whether the other side makes progress, and not at the clock alone."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import RuntimeTimeoutError
from aicirt.contract.messages import Reply
from aicirt.ipc.frames import FrameSocket
from aicirt.system import silence
from aicirt.system.silence import Progress, progress
from pyaici.client import control as control_module
from pyaici.client.control import Control, Daemon
from tests.thorough import cases

from .conftest import guest_runtime, real

WAITS, SLEEPS = Progress(True, 0.0, 0.0), Progress(False, 0.0, 0.0)


def see(monkeypatch: pytest.MonkeyPatch, state: Progress) -> None:
    """Has all processes seem to wait for a processor, or to sleep."""
    monkeypatch.setattr(silence, "progress", lambda _pid, family: state)


def test_a_daemon_may_start_slowly_while_it_makes_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """`aicirt was not ready after 60 s`: a slow machine took longer, although nothing was wrong."""
    monkeypatch.setattr(control_module, "START_SECONDS", 0.0)
    see(monkeypatch, WAITS)
    with Daemon(workers=1) as daemon:
        assert daemon.socket_path.exists()


def test_a_daemon_that_does_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "START_SECONDS", 0.0)
    see(monkeypatch, SLEEPS)
    with pytest.raises(RuntimeTimeoutError, match="aicirt was not ready, and did nothing for 0 s"):
        Daemon(workers=1)


def test_a_daemon_is_killed_only_when_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "CLOSE_SECONDS", 0.0)
    with Daemon(workers=1) as daemon:
        see(monkeypatch, WAITS)
    assert daemon._process is not None and daemon._process.returncode == 128 + signal.SIGTERM


def test_the_wait_for_a_start_includes_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def note(pid: int, family: bool) -> Progress:
        asked.append((pid, family))
        return progress(pid, family=family)

    monkeypatch.setattr(silence, "progress", note)
    with Daemon(workers=1) as daemon:
        assert set(asked) <= {(daemon.pid, True)} and asked


class Supervisor:
    """Answers `hello` and pings; answers another call after it has answered so many pings."""

    def __init__(self, path: Path, pings: int) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self.pings = pings
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        peer = FrameSocket(self._listening.accept()[0])
        slow: int | None = None
        while (message := peer.receive()) is not None:
            number, name, _, _ = message
            if name == "ping":
                self.pings -= 1
            elif name != "hello":
                slow = number
                continue
            peer.send(Reply(number, None, {}))
            if slow is not None and self.pings == 0:
                peer.send(Reply(slow, None, "done"))
        peer.close()

    def close(self) -> None:
        self._thread.join()
        self._listening.close()


class Counted:
    """A silence that is too long when it has been asked so many times whether it is."""

    MOST = 45

    def __init__(self, _pid: int) -> None:
        self._asked = 0

    def seconds(self) -> float:
        return 1.0

    def longer_than(self, _seconds: float) -> bool:
        self._asked += 1
        return self._asked > self.MOST


def test_a_call_may_take_as_long_as_the_supervisor_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`aicirt did not answer 'upload' within 120 s`: its compiler was at work all the time."""
    supervisor = Supervisor(tmp_path / "s", pings=Counted.MOST + 5)
    control = Control(tmp_path / "s")
    monkeypatch.setattr(control_module, "Silence", Counted)
    monkeypatch.setattr(control_module, "_PING_SECONDS", 0.0)
    monkeypatch.setattr(control_module, "_LOOK_SECONDS", 0.01)
    assert control.call("upload") == "done" and supervisor.pings == 0
    control.close()
    supervisor.close()


def test_a_supervisor_that_waits_for_a_processor_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "CALL_SECONDS", 0.0)
    with Daemon(workers=1) as daemon:
        control = Control(daemon.socket_path)
        see(monkeypatch, WAITS)
        os.kill(daemon.pid, signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (daemon.pid, signal.SIGCONT)).start()
        health: dict[str, Any] = control.call("health")
        assert health["pid"] == daemon.pid
        control.close()


def test_a_supervisor_that_answers_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with Daemon(workers=1) as daemon:
        control = Control(daemon.socket_path)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            monkeypatch.setattr(control_module, "CALL_SECONDS", 0.5)
            with pytest.raises(RuntimeTimeoutError, match=r"'health', and was silent for 0\.5 s"):
                control.call("health")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        control.close()


@real
def test_a_connection_in_use_is_open(world: None, guest_wasm: Path) -> None:
    """Another thread may read what has come, after which there is nothing for a while."""
    with guest_runtime(guest_wasm) as runtime:
        for _ in range(cases(300, 2000)):
            asking = threading.Thread(target=runtime._control.call, args=["ping"])
            asking.start()
            while asking.is_alive():
                assert runtime._control.is_open()
            asking.join()
    assert not runtime._control.is_open()
