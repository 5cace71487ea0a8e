"""MCP servers, real ones of the official package: limits, failures, changes, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lab.system.waiting import PATIENCE, wait_until
from pyaici.client.calls import CallEvent
from pyaici.tools.desk import Desk
from pyaici.tools.process import ToolsProcess
from tests.pyaici.tools.support import CALCULATOR, Caller, over_http, server


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of notes of calculators that this test starts."""
    path = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(path))
    return path


def pids(notes: Path) -> list[int]:
    """Returns the processes of calculators."""
    return [int(pid) for pid in re.findall("pid (.*)", notes.read_text())]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def last_of(caller: Caller, name: str, arguments: Any = None) -> dict[str, Any]:
    (result,) = caller((name, arguments or {}))
    return result


# -- limits and cancelling -------------------------------------------------------------------------------


# cancelling is left to the official package, which speaks both transports
@pytest.mark.parametrize("http", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_call_that_takes_too_long_is_cancelled(caller: Caller, notes: Path, http: bool) -> None:
    with over_http() if http else nullcontext(server("calc")) as setting:
        with caller.tools(setting, seconds=1):
            late, after = caller(("calc.hang", {}), ("calc.add", {"a": 1, "b": 1}))
            assert (late["code"], after) == ("timeout", {"value": {"result": 2}})
            wait_until(lambda: "cancelled" in notes.read_text())


def test_the_end_of_a_request_cancels_its_calls(caller: Caller, notes: Path) -> None:
    source = (
        'from aici import *\nasync def main():\n    call("calc.hang", {})\n    await call("calc.clock", {})\n'
    )
    with caller.tools(server("calc")):
        assert caller.play(source).error is None
        wait_until(lambda: "cancelled" in notes.read_text())
        assert last_of(caller, "calc.add", {"a": 1, "b": 1}) == {"value": {"result": 2}}


def test_calls_beyond_the_limit_wait(caller: Caller) -> None:
    source = """
import json
from aici import *
async def main():
    print(json.dumps(await gather(*[call("calc.crowd", {}) for _ in range(6)])))
"""
    with caller.tools(server("calc"), calls=2):
        crowds = json.loads(caller.play(source).log)
    assert len(crowds) == 6 and max(map(int, crowds)) <= 2


# -- failures ---------------------------------------------------------------------------------------------


# test_tools_that_come_and_go kills a server, which is started again, too
@pytest.mark.parametrize("fault", ["flood", pytest.param("die", marks=pytest.mark.thorough)])
def test_a_broken_server_is_started_again(caller: Caller, notes: Path, fault: str) -> None:
    with caller.tools(server("calc")):
        assert last_of(caller, f"calc.{fault}")["code"] == "mcp"
        while (result := last_of(caller, "calc.add", {"a": 1, "b": 1})) != {"value": {"result": 2}}:
            # between its old tools and those of the new process, it has none
            assert result["code"] in ("mcp", "unknown_call"), result
            time.sleep(0.1)
        *earlier, last = pids(notes)  # a machine that is busy may let another start take too long
        assert earlier
        wait_until(lambda: not any(map(alive, earlier)))
        assert alive(last)
    wait_until(lambda: not alive(last))


def test_secrets_reach_their_server_alone(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers come from the environment; programs get the operator's environment without our secrets."""
    monkeypatch.setenv("SEARCH_TOKEN", "Bearer s3cret")
    monkeypatch.setenv("AICI_TOKEN", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("WEATHER_KEY", "the server's own")
    with over_http() as setting:
        with caller.tools(f"{setting} authorization=env:SEARCH_TOKEN", server("local")) as process:
            sent, known = caller(("calc.credentials", {}), ("local.environment", {}))
            command = Path(f"/proc/{process._process.pid}/cmdline").read_text()  # type: ignore[union-attr]
    assert sent == {"value": "Bearer s3cret"}
    assert {"PATH", "WEATHER_KEY"} <= set(known["value"].split())
    assert {"SEARCH_TOKEN", "AICI_TOKEN", "HF_TOKEN"}.isdisjoint(known["value"].split())
    assert "s3cret" not in command


def test_a_server_over_http_may_come_back(caller: Caller) -> None:
    with over_http() as setting:
        port = setting.rpartition(":")[2].partition("/")[0]
        with caller.tools(setting):
            assert last_of(caller, "calc.die")["code"] == "mcp"
            with subprocess.Popen([sys.executable, str(CALCULATOR), port]) as again:
                try:
                    while (result := last_of(caller, "calc.add", {"a": 1, "b": 1})) != {
                        "value": {"result": 2}
                    }:
                        assert result["code"] == "mcp", result
                        time.sleep(0.1)
                finally:
                    again.kill()


def test_tools_that_come_and_go(caller: Caller, notes: Path) -> None:
    with caller.tools(server("calc")) as process:
        before = process.tools
        assert last_of(caller, "calc.grown")["code"] == "unknown_call"
        assert last_of(caller, "calc.grow") == {"value": "done"}
        wait_until(lambda: process.tools == before + 1)
        assert last_of(caller, "calc.grown") == {"value": "grown"}
        os.kill(pids(notes)[0], signal.SIGKILL)
        wait_until(lambda: process.tools == before)
        assert last_of(caller, "calc.grown")["code"] == "unknown_call"


def test_calls_of_an_earlier_offer_are_still_cancelled(caller: Caller, notes: Path) -> None:
    source = """
from aici import *
async def main():
    call("calc.hang", {})
    await call("calc.grow", {})
    while not any(each["name"] == "calc.grown" for each in await call("aici.calls")):
        await sleep(0.05)
"""
    with caller.tools(server("calc"), seconds=PATIENCE):
        result = caller.play(source)
        assert result.error is None and "hanging" in notes.read_text()
        wait_until(lambda: "cancelled" in notes.read_text())


def test_a_server_that_does_not_start_is_a_warning(
    caller: Caller, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('the database is locked')")
    with caller.tools(server("bad", broken), "none=/no/such/program", server("calc")) as process:
        assert process.tools > 10
        assert last_of(caller, "calc.add", {"a": 1, "b": 1}) == {"value": {"result": 2}}
    log = capfd.readouterr().err
    assert "the MCP server bad does not run: it has ended (exit status 1)" in log
    assert "the database is locked" in log and "Check --mcp bad" in log
    assert "the MCP server none does not run: there is no program /no/such/program" in log


def test_the_log_has_no_contents(caller: Caller, capfd: pytest.CaptureFixture[str]) -> None:
    with caller.tools(server("calc"), log_level="debug"):
        caller(
            ("calc.divide", {"a": 1, "b": 0}), ("calc.add", {"a": 3141592653, "b": 2}), ("calc.markers", {})
        )
        caller(("calc.add", {"a": "pineapple", "b": 2}), ("calc.big", {"size": 2_000_000}), ("calc.say", {}))
    log = capfd.readouterr().err
    assert "calc.add has failed: arguments" in log
    assert not re.search("3141592653|pineapple|Obey|xxxx|careless", log)


# -- the process --------------------------------------------------------------------------------------------


def tools_pid(process: ToolsProcess) -> int:
    assert process._process is not None
    return process._process.pid


def test_a_killed_process_is_replaced_and_leaves_no_server(caller: Caller, notes: Path) -> None:
    with caller.tools(server("calc")) as process:
        os.kill(tools_pid(process), signal.SIGKILL)
        wait_until(lambda: len(pids(notes)) == 2 and process.tools > 10)
        assert last_of(caller, "calc.add", {"a": 1, "b": 1}) == {"value": {"result": 2}}
        first, second = pids(notes)
        wait_until(lambda: not alive(first))
    wait_until(lambda: not alive(second))


# SIGKILL leaves no time to end the process in order: what ends it then ends it after SIGTERM, too
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_it_ends_with_its_parent(caller: Caller, notes: Path, number: signal.Signals) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom pyaici.tools.process import ToolsProcess\n"
        "from pyaici.tools.settings import ToolSettings\n"
        "process = ToolsProcess(Path(sys.argv[1]), ToolSettings((sys.argv[2],)))\n"
        "process.wait_until_ready()\nprint(process._process.pid, flush=True)\ntime.sleep(3600)"
    )
    command = [sys.executable, "-c", program, str(caller.socket), server("calc")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        tools = int(parent.stdout.readline())
        os.kill(parent.pid, number)
    wait_until(lambda: not alive(tools) and not any(map(alive, pids(notes))))


def test_it_ends_with_aicirt_restarting(
    caller: Caller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without aicirt, the process is tried again until there is one."""
    from pyaici.client.control import Daemon
    from pyaici.tools.settings import ToolSettings

    with caplog.at_level(logging.WARNING, "aicirt.tools"):
        with Daemon(workers=1) as daemon:
            process = ToolsProcess(daemon.socket_path, ToolSettings((server("calc"),)))
            assert process.wait_until_ready(PATIENCE)
        wait_until(lambda: process.tools == 0)
        process.close()
    assert "the tools process has ended" in caplog.text


def test_slow_calls_of_an_owner_leave_places_to_others() -> None:
    class Answers:
        """Stands for an `Answerer`."""

        def __init__(self) -> None:
            self.given: list[str] = []

        def offer(self, calls: Any, told: Any, for_all: bool) -> Any:
            return told

        def answer(self, id: str, result: bytes) -> bool:
            self.given.append(id)
            return True

    async def handle(name: str, arguments: Any) -> None:
        if name == "slow":
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        answers: Any = Answers()
        desk = Desk(answers, 2 * PATIENCE, 8)
        told: Any = await desk.offer([], handle)
        for number in range(100):
            told(None, CallEvent(f"eve-{number}", "", None, "slow", owner="eve"))
        told(None, CallEvent("ann-1", "", None, "quick", owner="ann"))
        async with asyncio.timeout(PATIENCE):
            while not answers.given:
                await asyncio.sleep(0.01)
        assert answers.given == ["ann-1"]
        await desk.close()

    asyncio.run(main())
