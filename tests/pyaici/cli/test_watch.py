from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab.system.waiting import PATIENCE
from pyaici.cli.__main__ import main
from pyaici.cli.watch import screen
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.client.conftest import VOCABULARY, guest_wasm

__all__ = ["guest_wasm"]


@pytest.fixture
def daemon(guest_wasm: Path) -> Iterator[Daemon]:
    """Yields a daemon with two live sequences, one ended by its time limit, and one ended by a trap."""
    with Daemon(workers=1) as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(guest_wasm).id
        for arg in ("ok", "ok", "pre_loop", "mid_trap"):
            seq = runtime.instantiate(module, arg)
            runtime.begin_step([StepInput(seq)]).wait()
            step = runtime.begin_step([StepInput(seq, [1])])
            failed = step.wait_pre().get(seq) or step.wait().mid[seq]
            assert (failed.verb == Verb.ERROR) == (arg != "ok")
        yield daemon


def test_top_once_prints_one_screen(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--socket", str(daemon.socket_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"aicirt {daemon.pid}: ") and "2 clients, 0 workers replaced" in text
    assert re.search(r"^worker 0 +\d+ +- +\d+ +\d+ +\d+ +2 +-$", text, re.MULTILINE)
    assert re.search(rf"^0 +{os.getpid()} +2$", text, re.MULTILINE)
    assert "so far: starts 4, time_limit 1, trap 1" in text
    assert re.search(r"^templates: 3 of \d+\.\d MB, 0 warm$", text, re.MULTILINE)


def test_json_output_has_all_values(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--json", "--socket", str(daemon.socket_path)]) == 0
    health = json.loads(capsys.readouterr().out)
    (worker,) = health["workers"]
    assert worker["counters"] == {"starts": 4, "time_limit": 1, "trap": 1}
    assert worker["rss_kib"] > 10_000 and worker["cpu_s"] >= 0 and worker["steps"] == 8
    assert [client["sequences"] for client in health["clients"]] == [2, 0]


def test_rates_are_computed_between_two_readings() -> None:
    builder = {"pid": 2, "cpu_s": 1.0, "rss_kib": 3000, "counters": {"argument": 1}}
    worker = {
        "pid": 3,
        "index": 0,
        "cpu_s": 2.0,
        "rss_kib": 90_000,
        "busy": 0.42,
        "steps": 100,
        "sequences": 5,
        "memory": {"bytes": 7_000_000},
    }
    dead = {"pid": 4, "index": 1, "error": "gone"}
    old = {
        "pid": 1,
        "modules": 1,
        "clients": [],
        "restarts": 0,
        "builders": [builder],
        "templates": {"kept": 7, "warm": 3, "bytes": 2_340_000},
        "warm_failures": {"trap": 2, "space": 1},
        "time": 10.0,
    }
    new = {**old, "workers": [{**worker, "cpu_s": 3.0, "steps": 200}, dead], "time": 12.0}
    lines = screen(new, {**old, "workers": [worker]})
    assert [line.split() for line in lines if line.startswith("worker 0")] == [
        ["worker", "0", "3", "50", "42", "90", "7", "5", "50"]
    ]
    assert any("gone" in line for line in lines) and lines[-1] == "so far: argument 1"
    assert "templates: 7 of 2.3 MB, 3 warm, aici_warm failed: space 1, trap 2" in lines


def test_top_continues_until_ctrl_c(daemon: Daemon) -> None:
    # restore the handler: background jobs of a shell ignore SIGINT, and children inherit that
    begin = "import signal, sys; signal.signal(2, signal.default_int_handler); "
    begin += "from pyaici.cli.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", begin, "top", "--interval", "0.2", "--socket"]
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [*command, str(daemon.socket_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        text = b""
        while text.count(b"so far") < 3:
            assert select.select([process.stdout], [], [], 60)[0]
            text += os.read(process.stdout.fileno(), 1 << 16)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert b"Traceback" not in process.stderr.read()
    assert b"steps/s" in text and b" 0 " in text


def test_top_needs_a_socket_and_a_positive_interval(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    assert main(["top"]) == 1
    assert "with --socket PATH or in AICI_SOCKET" in capsys.readouterr().err
    assert main(["top", "--socket", "/nowhere/aici.sock"]) == 1
    message = capsys.readouterr().err
    assert "no aicirt listens on /nowhere/aici.sock" in message and "--socket or AICI_SOCKET" in message
    with pytest.raises(SystemExit):
        main(["top", "--socket", "x", "--interval", "0"])
