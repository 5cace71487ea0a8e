"""`aici runtime`, and `aici list` with the daemon that it starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aicirt.contract.errors import ModuleError, RuntimeFailure
from lab.system.forked import run_forked
from lab.system.processes import family, left_behind
from lab.system.waiting import PATIENCE
from pyaici.cli.__main__ import main
from pyaici.client.runtime import Runtime

ROOT = Path(__file__).resolve().parents[3]


def test_daemon_in_the_foreground_serves_until_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon serves uploads and lists until SIGTERM, then shuts down."""
    monkeypatch.chdir(tmp_path)
    socket = tmp_path / "aicirt.sock"
    command = [sys.executable, "-m", "pyaici.cli", "runtime", "--workers", "1"]
    command += ["--socket", str(socket), "--store", str(tmp_path / "store")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            deadline = time.monotonic() + PATIENCE
            while not socket.exists():
                assert daemon.poll() is None and time.monotonic() < deadline, "the daemon does not start"
                time.sleep(0.05)
            main(["new", "mine", "--lang", "zig"])
            main(["build", "mine"])
            with Runtime(socket) as runtime:
                module = runtime.upload("mine.wasm")
                runtime.tag(module.id, "favourite")
            capsys.readouterr()
            assert main(["list", "--socket", str(socket)]) == 0
            assert re.search(rf"{module.id[:16]} .* favourite$", capsys.readouterr().out, re.MULTILINE)
            monkeypatch.setenv("AICI_SOCKET", str(socket))
            assert main(["list"]) == 0
            assert "favourite" in capsys.readouterr().out
        finally:
            daemon.send_signal(signal.SIGTERM)
            _, log = daemon.communicate(timeout=PATIENCE)
    assert daemon.returncode == 143, log
    assert not socket.exists()


def test_who_sees_the_socket_can_connect(tmp_path: Path) -> None:
    code = """
import socket, sys
from aicirt.__main__ import main
from aicirt.supervisor import server
server.WorkerPool = lambda *_: sys.exit(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[2]))
main()  # listens before it starts workers
"""
    command = [sys.executable, "-c", code, "--socket", str(tmp_path / "sock"), "--store", str(tmp_path)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["ready", "starting"])
def test_signal_ends_the_daemon_and_all_its_processes(
    tmp_path: Path, moment: str, number: signal.Signals, status: int
) -> None:
    """Sends the signal to the process group, as a terminal does on Ctrl-C."""
    socket = tmp_path / "aicirt.sock"
    command = [sys.executable, "-m", "pyaici.cli", "runtime", "--workers", "2"]
    command += ["--socket", str(socket), "--store", str(tmp_path / "store")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as daemon:
        try:
            assert daemon.stderr is not None
            if moment == "ready":
                # on a slow machine, a line about its pace comes first
                assert any("listening on" in line for line in daemon.stderr)
            members = family(daemon.pid)
            while len(members) < 4 and daemon.poll() is None:  # until two workers and a builder have started
                members = family(daemon.pid)
                time.sleep(0.005)
        finally:
            os.killpg(daemon.pid, number)
            _, log = daemon.communicate(timeout=PATIENCE)
    why = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert log.splitlines()[-1:] == [f"aici runtime: {why}"]
    assert "Traceback" not in log and "ERROR" not in log, log
    assert daemon.returncode == status
    assert left_behind(members) == [] and not socket.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--socket", "file"], "file exists and is not a socket"),
        (["--socket", "folder"], "folder exists and is not a socket"),
        (["--socket", "nowhere/sock"], "the folder nowhere of the socket does not exist"),
        (["--socket", "x" * 200], "107 bytes: choose a shorter --socket"),
        (["--store", "file"], "modules cannot be stored in file"),
        (["--log-level", "loud"], "invalid choice: 'loud'"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--limit", "mid_ms=fast"], "'mid_ms=fast' is not NAME=NUMBER"),
        (["--sokcet", "x"], "did you mean --socket?"),
        (["--limit", "max_forks=-1"], "max_forks is -1; it must be 0 or a positive number"),
    ],
)
def test_wrong_options_are_explained_and_change_no_files(
    tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "file").write_text("keep")
    (tmp_path / "folder").mkdir()
    if "--socket" not in options:
        options = [*options, "--socket", "sock"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_forked("pyaici.cli", "runtime", *options, env=env, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "keep"
    assert not (tmp_path / "sock").exists()


def test_list_without_a_daemon_explains_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--socket", str(tmp_path / "none.sock")]) == 1
    assert "start one with 'aici runtime --socket PATH'" in capsys.readouterr().err


def test_help_and_errors_are_the_daemons_with_the_commands_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runtime", "--help"])
    assert ended.value.code == 0
    assert "usage: aici runtime" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["runtime", "--limit", "luck=7"])
    assert ended.value.code == 2
    assert "no limit 'luck'" in capsys.readouterr().err


def test_limits_of_the_environment_reach_private_daemons_and_options_override_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = bytes(64)
    monkeypatch.setenv("AICI_LIMITS", "module_bytes=32  max_forks=3")
    with Runtime(workers=1) as runtime, pytest.raises(ModuleError, match="limit of 32"):
        runtime.upload(program)
    with (
        Runtime(workers=1, limits={"module_bytes": 48}) as runtime,
        pytest.raises(ModuleError, match="limit of 48"),
    ):
        runtime.upload(program)
    monkeypatch.setenv("AICI_LIMITS", "max_forks=many")
    with pytest.raises(RuntimeFailure, match="AICI_LIMITS: 'max_forks=many' is not NAME=NUMBER"):
        Runtime(workers=1)
