"""MCP servers and controllers that try to stop the tools of all others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.system.waiting import wait_until
from pyaici.client.calls import CallError, plain
from pyaici.tools.results import mismatch
from pyaici.tools.servers import _written
from pyaici.tools.transport import Program
from tests.pyaici.tools.rogue import DOUBLING, OBJECT, OTHER_DRAFT, SCHEMAS
from tests.pyaici.tools.support import Caller, server

#: no pattern of the server's may be matched with it
TEXT = "a" * 60 + "!"


@pytest.fixture(scope="module")
def rogue(caller: Caller) -> Iterator[Caller]:
    """A caller whose calls `rogue.*` are answered by such a server."""
    with caller.tools(server("rogue", Path(__file__).with_name("rogue.py"))):
        yield caller


def test_patterns_and_references_of_a_server_take_no_time(rogue: Caller) -> None:
    calls = [("rogue.drafts", {"a": TEXT}), ("rogue.doubling", {"a": 1}), ("rogue.malformed", {"a": 1})]
    found = rogue(("rogue.pattern", {}), *calls)
    assert found[0] == {"value": {"a": TEXT}}
    assert [json.loads(each["value"]) for each in found[1:]] == [given for _, given in calls]


def test_results_are_checked(rogue: Caller) -> None:
    mismatched, broken = rogue(("rogue.mismatch", {}), ("rogue.broken", {}))
    assert mismatched["code"] == "mcp" and "'b' is a required property" in mismatched["message"]
    assert broken == {"code": "mcp", "message": "the MCP server rogue: its answer cannot be read"}


def test_arguments_that_cannot_be_written_leave_the_server_running(rogue: Caller) -> None:
    half, after = rogue(("rogue.echo", {"a": "\ud800"}), ("rogue.echo", {"a": "\U0001f600"}))
    assert half["code"] == "arguments" and "surrogate" in half["message"]
    assert json.loads(after["value"]) == {"a": "\U0001f600"}


def test_numbers_in_schemas_that_not_everybody_reads(rogue: Caller) -> None:
    source = """
import json
from aici import *
async def main():
    print(json.dumps({each["name"]: each["schema"] for each in await call("aici.calls")}))
"""
    known = json.loads(rogue.play(source).log)
    assert "rogue.odd" not in known and len(known) == len(SCHEMAS) - 1
    assert known["rogue.huge"]["properties"]["a"] == {"maximum": 1e30}


def test_a_server_that_asks_without_end_is_ended(rogue: Caller) -> None:
    (asked,) = rogue(("rogue.asks", {}))
    assert asked["code"] == "mcp"


def test_signals_go_to_a_group_only_while_its_number_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a process has been waited for, its number may be that of another group."""
    left = tmp_path / "left"
    shell = ["/bin/sh", "-c", f"sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >{left}; exit 3"]
    program = Program(shell, os.environ)
    signals = []

    def killpg(pid: int, number: int, send: Any = os.killpg) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises if it has been waited for
        signals.append(number)
        send(pid, number)

    monkeypatch.setattr(os, "killpg", killpg)

    async def main() -> None:
        async with program:
            await program.ended.wait()

    asyncio.run(main())
    assert program.problem == "it has ended (exit status 3)"
    assert signals == [signal.SIGKILL]
    stat = Path("/proc", left.read_text().strip(), "stat")
    wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_checks_have_an_end() -> None:
    schema = {"$ref": "#/$defs/d0", "$defs": DOUBLING | {"d60": OBJECT}}
    assert mismatch({}, schema) == ""
    assert mismatch({"a": TEXT}, {"properties": {"a": OTHER_DRAFT}}) == ""
    assert mismatch({"a": [1]}, {"properties": {"a": {"items": OTHER_DRAFT | {"type": "string"}}}}) == (
        "$.a[0]: 1 is not of type 'string'"
    )


def test_keywords_that_take_the_square_of_a_values_size_are_left_to_the_server() -> None:
    assert mismatch([1], {"unevaluatedItems": False}) == ""
    assert mismatch([1, 1], {"uniqueItems": True}) == ""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_arguments_and_descriptions_that_cannot_be_written() -> None:
    for arguments in ({"a": nested(300)}, {"\udfff": 1}, [], "x"):
        with pytest.raises(CallError, match="the arguments"):
            _written("echo", arguments)
    for described in (float("inf"), "\ud800", nested(100_000), {1, 2}, 10**400):
        with pytest.raises(ValueError, match=r".+"):
            plain({"schema": described})
    assert plain({"a": [2**64, 2**64 - 1, -(2**63)]}) == {"a": [float(2**64), 2**64 - 1, -(2**63)]}
