"""Calls of controllers on vLLM: functions of a client answer, others go on, and nothing is read twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lab.system.waiting import PATIENCE, Door
from pyaici import VllmEngine
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request
from pyaici.engines.vllm.scheduling import driver
from pyaici.scripting.script import LANGUAGE_NAMES, interpreter_file, read_request
from pyaici.tools.process import ToolsProcess
from pyaici.tools.settings import ToolSettings
from tests.pyaici.engines.vllm.requests import driver_of
from tests.pyaici.tools.support import server as setting

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]
PROMPT = list(range(1000, 1040))
SOURCE = """
from aici import *

async def main():
    await gen(max_tokens=4)
    first = call("double", n=2)
    await force(str(await call("door")) + str(await first))
    try:
        await call("nobody")
    except CallError as error:
        print(error.code)
    await gen(max_tokens=2)
"""


@pytest.fixture(scope="session")
def module(runtime: Runtime) -> str:
    """The interpreter of scripts, at the shared daemon."""
    return runtime.upload(interpreter_file(LANGUAGE_NAMES["python"])).id


def request(module: str, source: str, **options: Any) -> Request:
    arg = read_request({"language": "python", "source": source})[1]
    return Request(PROMPT, controller=module, arg=arg, max_tokens=60, **options)


def main(line: str) -> str:
    """Returns a script with this line."""
    return f"from aici import *\nasync def main():\n    {line}\n"


def test_functions_answer_calls_while_others_go_on(llm: Any, runtime: Runtime, module: str) -> None:
    engine = VllmEngine(llm, runtime)
    door = Door()
    calls = {"double": lambda n: 2 * n, "door": door}
    waiting = engine.add(request(module, SOURCE, calls=calls))
    while not door.reached.is_set():
        engine.step()
    mate = engine.add(Request(PROMPT, max_tokens=8))
    while engine._families.names(mate):
        engine.step()
    assert len(engine.results(mate)[0].new_tokens) == 8
    assert engine.parked_requests() == {waiting}
    door.open()
    while engine.busy:
        engine.step()
    assert not runtime.answerer._handlers, "the offer has ended with the request"
    (result,) = engine.results(waiting)
    assert (result.error, result.log) == (None, "unknown_call\n")
    assert "through4" in result.text
    assert engine.stats.read_again == 0, "its blocks were kept"


def test_a_waiting_request_is_not_asked_in_each_step(
    llm: Any, runtime: Runtime, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the call and its answer, the worker gets no steps."""
    monkeypatch.setattr(driver, "_SLEEP_SECONDS", 0.01)
    engine = VllmEngine(llm, runtime)
    door = Door()
    number = engine.add(request(module, main('await force(await call("door"))'), calls={"door": door}))
    while not door.reached.is_set():
        engine.step()
    requests = driver_of(llm).requests
    while not any(one.answer is not None and one.answer.waits for one in requests.values()):
        engine.step()
    before = -1
    while before != (before := runtime.health()["workers"][0]["steps"]):  # those that were posted before
        for _ in range(3):
            engine.step()
    for _ in range(20):
        engine.step()
    assert runtime.health()["workers"][0]["steps"] == before
    door.open()
    while engine.busy:
        engine.step()
    (result,) = engine.results(number)
    assert (result.error, result.text) == (None, "through")


def test_runs_get_messages(llm: Any, runtime: Runtime, module: str) -> None:
    """Sends from one run to another, and from the program."""
    engine = VllmEngine(llm, runtime)
    chat = "while (message := await receive()) is not None:\n        await force(message)"
    first = engine.add(request(module, main(chat), name="first"))
    second = engine.add(request(module, main('await send("first", "hello")'), calls={}))
    while engine._families.names(second):
        engine.step()
    runtime.answerer.send("first", ", you")
    runtime.answerer.send("first", None)
    while engine.busy:
        engine.step()
    (result,), (other,) = engine.results(first), engine.results(second)
    assert (result.error, result.text, other.error) == (None, "hello, you", None)


def test_requests_of_vllms_own_users_get_messages(llm: Any) -> None:
    from vllm import SamplingParams

    chat = "message = await receive()\n    await force(message)"
    send = """
    while True:
        try:
            return await send("first", "hello")
        except CallError:  # that run has not begun
            await sleep(0.01)
    """
    parameters = [
        SamplingParams(
            max_tokens=20,
            extra_args={"aici_script": {"language": "python", "source": main(lines)}, "aici_name": name},
        )
        for name, lines in (("first", chat), ("second", send))
    ]
    first, _ = llm.generate([{"prompt_token_ids": PROMPT}] * 2, parameters, use_tqdm=False)
    assert first.outputs[0].text == "hello"


def test_requests_of_vllms_own_users_use_the_operators_tools(llm: Any, daemon: Daemon) -> None:
    from vllm import SamplingParams

    source = main('await force(str(await call("calc.add", a=2, b=3)))')
    script = {"language": "python", "source": source}
    with ToolsProcess(daemon.socket_path, ToolSettings((setting("calc"),))) as tools:
        assert tools.wait_until_ready(PATIENCE)
        parameters = SamplingParams(max_tokens=40, extra_args={"aici_script": script, "aici_calls": True})
        (answer,) = llm.generate({"prompt_token_ids": PROMPT}, parameters, use_tqdm=False)
    assert answer.outputs[0].text == "{'result': 5}"


def test_an_engine_sleeps_until_a_controller_or_a_thread_wakes_it(
    llm: Any, runtime: Runtime, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLEEP_SECONDS", PATIENCE)  # nothing else ends a sleep
    sleeps: list[float] = []
    sleep = Runtime.sleep

    def count(runtime: Runtime, seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 1:
            threading.Timer(0.1, engine.wake).start()
        elif len(sleeps) == 2:
            threading.Timer(0.1, door.open).start()
        sleep(runtime, seconds)

    monkeypatch.setattr(Runtime, "sleep", count)
    engine, door = VllmEngine(llm, runtime), Door()
    source = 'from aici import *\nasync def main():\n    await force(await call("door"))\n'
    (result,) = engine.run([request(module, source, calls={"door": door})])
    assert (result.error, result.text) == (None, "through")
    assert set(sleeps) == {PATIENCE} and len(sleeps) < 10, sleeps


def test_functions_need_a_connection(llm: Any, module: str) -> None:
    with pytest.raises(ValueError, match="runtime"):
        VllmEngine(llm).add(request(module, SOURCE, calls={"door": int}))
