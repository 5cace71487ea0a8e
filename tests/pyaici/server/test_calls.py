"""Calls over HTTP: a controller's calls are events of its run, and the client posts the answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.system.waiting import PATIENCE
from pyaici.cli.__main__ import main
from pyaici.client.calls import CallError
from pyaici.rest import RestClient, ServerError
from tests.pyaici.server.serving import Serving
from tests.pyaici.test_rest import Blocking

ASKING = """
from aici import *
async def main():
    first, second = call("add", a=2, b=3), call("shout", {"text": "hey"})
    await force(f"{await first} {await second}")
    try:
        await call("fails")
    except CallError as error:
        print(error.code, error)
"""


def _script(source: str) -> dict[str, str]:
    return {"language": "python", "source": source}


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def shout(text: str) -> str:
    return text.upper()


def fails() -> None:
    raise ValueError("no luck")


FUNCTIONS = {"add": add, "shout": shout, "fails": fails}


def _client(server: Serving, token: str | None = None) -> RestClient:
    return RestClient(server.url, token)


@pytest.mark.parametrize("kind", [RestClient, Blocking])
def test_functions_of_a_client_answer(server: Serving, kind: Callable[..., Any]) -> None:
    with kind(server.url) as client:
        events = list(client.run(calls=FUNCTIONS, script=_script(ASKING), prompt="x"))
    (fork,) = events[-1]["forks"]
    assert (fork["text"], fork["error"]) == ("5 HEY", None)
    assert fork["log"] == "failed ValueError: no luck\n"
    calls = [call for event in events for call in event.get("calls", ())]
    made = {call["name"]: call for call in calls if "name" in call}
    assert json.loads(made["add"]["arguments"]) == {"a": 2, "b": 3}
    assert all(call["answer"] for call in made.values())
    ended = {call["id"]: call["error"] for call in calls if "ended" in call}
    assert ended == {made["add"]["id"]: None, made["shout"]["id"]: None, made["fails"]["id"]: "failed"}
    (sum_of,) = [call for call in calls if call["id"] == made["add"]["id"] and "ended" in call]
    assert sum_of["bytes"] == len('{"value": 5}')


OUTCOMES = """
from aici import *
async def main():
    for name in ("add", "aici.calls", "picky", "my secret"):
        try:
            await call(name, {"a": 20001, "b": 30002})
        except CallError as error:
            print(error.code)
    await call("last")
"""


def test_calls_are_counted_and_logged_without_contents(server: Serving) -> None:
    def picky(a: int, b: int) -> None:
        raise CallError("too_picky_for_a_label", "my other secret")

    def counts() -> dict[str, float]:
        known = re.compile(r'aici_calls_total\{outcome="(.*)"\}|(aici_call_seconds_count)')
        found = ((known.fullmatch(name), value) for name, value in server.metrics().items())
        return {match[1] or match[2]: value for match, value in found if match}

    before, start = counts(), len(server.text())
    with _client(server) as client:
        # its event follows all others; its own end may come after that of the run, which then cancels it
        functions = {"add": add, "picky": picky, "last": lambda: None}
        events = list(client.run(calls=functions, script=_script(OUTCOMES), prompt="x"))
    (fork,) = events[-1]["forks"]
    assert fork["log"] == "too_picky_for_a_label\nunknown_call\n"
    made = [call for event in events for call in event.get("calls", ()) if "name" in call]
    assert [(call["name"], call["answer"]) for call in made] == [
        ("add", True),
        ("aici.calls", False),
        ("picky", True),
        ("my secret", False),
        ("last", True),
    ]
    grown = {name: value - before.get(name, 0) for name, value in counts().items()}
    cancelled = grown.pop("cancelled", 0)
    assert {name: value for name, value in grown.items() if value} == {
        "ok": 2 - cancelled,
        "other": 1,
        "unknown_call": 1,
        "aici_call_seconds_count": 4,
    }
    server.wait_for("call - for ")
    log = server.text()[start:]
    assert re.search(r"call add for \S+: ok in \d+ ms, 16 bytes", log)
    assert re.search(r"call picky for \S+: other in \d+ ms, \d+ bytes", log)
    assert re.search(r"call - for \S+: unknown_call in \d+ ms, \d+ bytes", log)
    for content in ("20001", "50003", "secret", "too_picky", "call aici.calls"):
        assert content not in log


WAITING = 'from aici import *\nasync def main():\n    print(await call("ask"))\n'


def test_only_its_user_answers_a_call_and_only_once(server: Serving, tokens: dict[str, str]) -> None:
    with _client(server, tokens["ada"]) as ada, _client(server, tokens["eve"]) as eve:
        run = ada.run(calls={"other": add}, script=_script(WAITING), prompt="x")
        events = [next(run)]
        with pytest.raises(ServerError) as unknown:
            ada.answer_call("0" * 32 + "-0-1-1-1", 1)
        assert (unknown.value.status, unknown.value.reason) == (404, "unknown_call")
        events += run
        assert "nobody answers the call" in events[-1]["forks"][0]["error"]["message"]

        stream = ada.run(script=_script(WAITING), prompt="x", calls=[{"name": "ask"}])
        asked: list[Any] = []
        while not asked:
            asked = next(stream).get("calls", [])
        with pytest.raises(ServerError) as refused:
            eve.answer_call(asked[0]["id"], "stolen")
        assert refused.value.status == 404
        ada.answer_call(asked[0]["id"], {"answer": [1, None]})
        with pytest.raises(ServerError) as again:
            ada.answer_call(asked[0]["id"], "twice")
        assert again.value.status == 404
        *_, end = stream
    assert end["forks"][0]["log"] == "{'answer': [1, None]}\n"


def test_a_run_that_ends_takes_no_answers(server: Serving) -> None:
    with _client(server) as client:
        stream = client.run(script=_script(WAITING), prompt="x", calls=[{"name": "ask"}])
        asked: list[Any] = []
        while not asked:
            asked = next(stream).get("calls", [])
        stream.close()
        while server.metrics()['aici_live_requests{controlled="true"}']:
            time.sleep(0.01)
        with pytest.raises(ServerError) as refused:
            client.answer_call(asked[0]["id"], 1)
        assert refused.value.reason == "unknown_call"


def test_an_answer_that_comes_after_the_client_has_closed_is_dropped(server: Serving) -> None:
    closed = threading.Event()
    with _client(server) as client:
        stream = client.run(script=_script(WAITING), prompt="x", calls={"ask": lambda: closed.wait(PATIENCE)})
        while not next(stream).get("calls"):
            pass
        answering = [thread for thread in threading.enumerate() if thread.name == "call"]
        stream.close()
    closed.set()
    assert answering
    for thread in answering:
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([{"name": "a"}, {"name": "a"}], "offered twice"),
        ([{"name": "aici.x"}], "aici."),
        ([{"name": ""}], "name"),
        ([{"name": "a"}] * 200, "calls"),
    ],
)
def test_refused_offers(server: Serving, calls: list[Any], says: str) -> None:
    with server.client() as client:
        body = {"script": _script(WAITING), "prompt": "x", "calls": calls}
        answer = client.post("/v1/run", json=body)
    assert answer.status_code == 400 and says in answer.text, answer.text


def test_calls_need_a_stream(server: Serving) -> None:
    with server.client() as client:
        body = {"script": _script(WAITING), "prompt": "x", "calls": [{"name": "ask"}], "stream": False}
        answer = client.post("/v1/run", json=body)
    assert answer.status_code == 400 and "stream" in answer.text


CHAT = """
from aici import *
async def main():
    while (message := await receive()) is not None:
        await force(message.upper())
        if message == "b":
            print(await send("other", 1))
"""


def test_a_run_gets_messages_of_its_user(server: Serving, tokens: dict[str, str]) -> None:
    with _client(server, tokens["ada"]) as ada, _client(server, tokens["eve"]) as eve:
        for name, who in (("chat", ada), ("nobody", eve)):
            with pytest.raises(ServerError) as unknown:
                who.send_message(name, "hello")
            assert (unknown.value.status, unknown.value.reason) == (404, "unknown_run")
        run = ada.run(script=_script(CHAT), prompt="x", name="chat")
        events = [next(run)]
        with pytest.raises(ServerError) as again:
            list(ada.run(script=_script(CHAT), prompt="x", name="chat"))
        assert (again.value.status, again.value.reason) == (400, "offer")
        with pytest.raises(ServerError) as stolen:
            eve.send_message("chat", "stop")
        assert stolen.value.status == 404
        for message in ("a", "bc", None):
            ada.send_message("chat", message)
        events += run
        assert events[-1]["forks"][0]["text"] == "ABC"
        received = [call for event in events for call in event.get("calls", ()) if call.get("name")]
        assert {call["name"] for call in received} <= {"aici.receive"}, "those that had to wait are shown"
        with pytest.raises(ServerError) as over:
            ada.send_message("chat", "too late")
        assert over.value.status == 404
        with pytest.raises(ServerError) as several:
            list(ada.run(script=_script(CHAT), prompt="x", name="chat", n=2))
        assert "n must be 1" in several.value.message


def test_runs_that_wait_hold_no_turn(tmp_path: Path) -> None:
    """On a server that generates for one request at a time."""
    options = "--max-streams", "1", "--max-parked", "3"
    with Serving(tmp_path / "log", *options) as server, _client(server) as client:
        names = ["one", "two", "three"]
        runs = [client.run(script=_script(CHAT), prompt="x", name=name) for name in names]
        firsts = [next(run) for run in runs]
        answer = list(client.run(prompt="x", max_tokens=2))
        assert answer[-1]["forks"][0]["finish_reason"] == "length" and len(firsts) == 3
        for name, run in zip(reversed(names), reversed(runs), strict=True):
            for message in (name, None):
                try:
                    client.send_message(name, message)
                except ServerError as error:
                    pytest.fail(f"{error}: {list(run)}")
        for name, run in zip(names, runs, strict=True):
            assert list(run)[-1]["forks"][0]["text"] == name.upper()


def test_many_sequences_have_biases(server: Serving) -> None:
    """Each needs room of its own in the worker that it is in."""
    source = """
from aici import *
async def main():
    await sample(favoured=TokenSet(tokenize("a")), bias=100.0)
    for i in range(4):
        await sample(favoured=TokenSet(tokenize("b")), bias=100.0)
"""
    with _client(server) as client:
        *_, end = client.run(script=_script(source), prompt="x", n=8, max_tokens=5)
    assert [fork["error"] for fork in end["forks"]] == [None] * 8


def test_the_command_line_sends_messages(server: Serving, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHAT)
    command = ["run", str(script), "--server", server.url, "--prompt", "x", "--messages"]
    done = subprocess.run(
        [sys.executable, "-m", "pyaici.cli", *command], input=b"a\nbc\n", capture_output=True, check=True
    )
    assert "ABC" in done.stdout.decode().replace("«", "").replace("»", "")


def test_the_command_line_answers_calls(
    server: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    functions = tmp_path / "functions.py"
    functions.write_text("def ask():\n    return 'an answer'\n\ndef _other():\n    return 1\n")
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    status = main(["run", str(script), "--server", server.url, "--prompt", "x", "--calls", str(functions)])
    assert (status, "an answer" in capfd.readouterr().out) == (0, True)
