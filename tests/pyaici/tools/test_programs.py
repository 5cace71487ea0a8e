"""Tools beside the programs of the operator: `aici serve --mcp`, and `aici runtime --mcp`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.runners.compiled import share
from lab.system.waiting import wait_until
from pyaici.cli.__main__ import main
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.batching.support import byte_vocabulary, make_engine, make_model
from tests.pyaici.server.serving import Serving
from tests.pyaici.tools.support import Caller, server

_SCRIPT = """
from aici import *
async def main():
    await force(str(await call("calc.add", {"a": 1, "b": 2})))
"""


def test_aici_serve_lets_scripts_use_tools(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('the database is locked')")
    arguments = ["--mcp", server("calc"), "--mcp", server("bad", broken)]
    with Serving(tmp_path / "log", *arguments) as serving:
        controller = {"controller": "pyctrl", "controller_arg": {"script": _SCRIPT, "name": "script.py"}}
        *_, end = serving.events(prompt="1 + 2 =", **controller)
        (fork,) = end["forks"]
        assert fork["text"] == "{'result': 3}", end
        (call,) = serving.run(prompt="1 + 2 =", **controller)["calls"]
        assert (call["name"], call["answer"], call["error"]) == ("calc.add", False, None)
        assert json.loads(call["arguments"]) == {"a": 1, "b": 2}
        with serving.client() as client:
            ready = client.get("/ready")
        assert ready.status_code == 200
        tools = ready.json()["tools"]
        assert {name: one["state"] for name, one in tools["sources"].items()} == {
            "calc": "running",
            "bad": "failed",
        }
        assert tools["calls"] == tools["sources"]["calc"]["tools"] > 0 == tools["sources"]["bad"]["tools"]
        serving.wait_for("call calc.add for .*: ok in")
    log = serving.text()
    assert "the MCP server calc offers" in log
    assert "the MCP server bad does not run" in log and "the database is locked" in log


def test_aici_runtime_runs_tools_beside_the_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "aici.sock"
    command = [sys.executable, "-m", "pyaici.cli", "runtime", "--socket", str(path), "--workers", "1"]
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('the database is locked')")
    command += ["--mcp", server("calc"), "--mcp", server("bad", broken)]
    command += ["--http-allow", "https://example.org"]
    notes = tmp_path / "notes"
    environment = {**os.environ, "AICI_STORE": str(share(tmp_path / "store")), "NOTES": str(notes)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as daemon:
        try:
            wait_until(path.exists)
            with Runtime(path) as runtime:
                with make_engine(make_model(), runtime=runtime, vocabulary=byte_vocabulary()) as engine:
                    caller = Caller(engine, path)
                    wait_until(lambda: "code" not in caller(("calc.add", {"a": 1, "b": 2}))[0])
                    assert caller(("calc.add", {"a": 1, "b": 2})) == [{"value": {"result": 3}}]
                wait_until(
                    lambda: runtime.health()["tools"]["sources"].get("bad", {}).get("state") == "failed"
                )
                number = runtime.health()["tools"]["sources"]["calc"]["tools"]
            assert main(["doctor", "--socket", str(path)]) == 0
            shown = capsys.readouterr().out
            sources = f"bad failed (0 tools); calc running ({number} tools); http running (1 tool)"
            assert f"tools            {number + 1} calls offered; {sources}" in shown
        finally:
            daemon.send_signal(signal.SIGTERM)
            _, log = daemon.communicate()
    assert b"the MCP server calc offers" in log
    pid = int(notes.read_text().split()[1])
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_the_help_of_both_lists_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("serve", "runtime"):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        text = capsys.readouterr().out
        assert all(option in text for option in ("--mcp", "--http-allow", "--tool-calls", "--tool-seconds"))


def test_invalid_settings_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--mcp", "calc"]) == 1
    assert "write NAME=COMMAND or NAME=URL" in capsys.readouterr().err
