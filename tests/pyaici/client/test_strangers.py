"""Other users of the machine cannot stop a daemon with planted files, and get no data from its clients."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aicirt.contract.errors import ForeignDaemonError
from aicirt.system.processes import child_environment
from lab.system.waiting import wait_until
from pyaici.client.runtime import Runtime
from tests.stranger import STRANGER, as_stranger, let_through, needs_root, start_as_stranger, wait_for


@pytest.fixture
def public_folder(tmp_path: Path) -> Path:
    """A folder like /tmp that the other user can write to."""
    let_through(tmp_path)
    folder = tmp_path / "public_folder"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@needs_root
def test_a_client_sends_nothing_to_a_foreign_daemon(public_folder: Path) -> None:
    path, got = public_folder / "aicirt.sock", public_folder / "got"

    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as server:
            early = path.with_suffix(".early")
            server.bind(str(early))
            early.chmod(0o777)
            server.listen()
            early.rename(path)  # who sees it can connect
            connection, _ = server.accept()
            got.write_bytes(connection.recv(1 << 16))

    pid = start_as_stranger(listen)
    wait_until(path.exists)
    with pytest.raises(ForeignDaemonError, match=f"belongs to user {STRANGER.pw_uid}, not to 0"):
        Runtime(path)
    wait_for(pid)
    assert got.read_bytes() == b""


def run_daemon(folder: Path) -> tuple[int, str]:
    """Runs `python -m aicirt` with its default socket below `folder`. Returns its exit status and stderr."""
    environment = {**child_environment(), "TMPDIR": str(folder), "AICI_STORE": str(folder / "store")}
    for name in ("AICI_SOCKET", "XDG_RUNTIME_DIR"):
        environment.pop(name, None)
    command = [sys.executable, "-P", "-m", "aicirt", "--workers", "1", "--ready-fd", "1"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() == "ready\n":
            process.terminate()
            return 0, ""
        return process.wait(), process.stderr.read()


def test_the_default_folder_is_private(public_folder: Path) -> None:
    folder = public_folder / f"aici-{os.getuid()}"
    assert run_daemon(public_folder) == (0, "")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    status, stderr = run_daemon(public_folder)
    assert status == 1 and "is open to other users" in stderr and "XDG_RUNTIME_DIR" in stderr


@needs_root
def test_a_folder_of_another_user_is_not_used(public_folder: Path) -> None:
    folder = public_folder / f"aici-{os.getuid()}"

    def plant() -> None:
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)

    as_stranger(plant)
    status, stderr = run_daemon(public_folder)
    assert status == 1 and list(folder.iterdir()) == []
    assert f"belongs to user {STRANGER.pw_uid}, not to 0" in stderr and "--socket PATH" in stderr


@needs_root
def test_a_socket_that_accepts_no_connections_does_not_block_a_new_daemon(public_folder: Path) -> None:
    """The socket's queue is full, so a blocking connection would wait forever."""
    path = public_folder / "aicirt.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(str(path))
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "aicirt",
                "--socket",
                str(path),
                "--store",
                str(public_folder / "store"),
            ],
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        for sock in waiting:
            sock.close()
    assert done.returncode == 1 and "another aicirt is listening" in done.stderr
