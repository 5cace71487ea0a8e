"""Calls of controllers with real engines: what waiting costs, what is told, what ends them, and limits."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aicirt.contract.errors import AiciError
from lab.system.waiting import PATIENCE, Door
from pyaici.client.calls import CallEvent
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import FinishReason, GenerationResult, Request
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, CountingPasses, make_engine, script

PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
#: small, so that tests reach them
LIMITS = {
    "max_calls": 8,
    "calls_under_way": 2,
    "max_call_bytes": 1000,
    "max_queued_call_bytes": 2000,
    "max_result_bytes": 3000,
    "answer_bytes": 2500,
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, limits=LIMITS) as runtime:
        yield runtime


@pytest.fixture
def engine(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        yield engine


def play(engine: BatchingEngine, body: str, calls: dict[str, Callable[..., Any]]) -> GenerationResult:
    """Runs a script alone; returns its result."""
    number = engine.add(Request(PROMPT, **script(body), calls=calls))
    engine.run()
    (result,) = engine.results(number)
    return result


def test_waiting_takes_no_pass_and_nothing_is_read_twice(
    engine: BatchingEngine, generate: Callable[..., list[int]]
) -> None:
    door = Door()
    body = 'await force("a")\nawait force(await call("door"))\nprint(await gen(max_tokens=1))'
    with CountingPasses(engine) as counting:
        waiting = engine.add(Request(PROMPT, **script(body), calls={"door": door}))
        while not any(seq.parked is not None for seq in engine._pool.live.values()):
            engine.step()
        before = len(counting.passes)
        mate = engine.add(Request(MATE, max_tokens=12))
        while engine._pool.unfinished(mate):
            engine.step()
        assert all(len(passed) == 1 for passed in counting.passes[before:]), counting.passes
        assert engine.results(mate)[0].new_tokens == generate(MATE, 12)
        before = len(counting.passes)
        door.open()
        engine.run()
        (result,) = engine.results(waiting)
        # everything is read once, except the last token of the mate, after which nothing follows
        assert sum(map(sum, counting.passes)) <= len(PROMPT) + len("athrough") + 1 + len(MATE) + 11
    assert (result.text[:8], result.error) == ("athrough", None)


def test_an_engine_sleeps_while_all_controllers_wait(engine: BatchingEngine) -> None:
    door = Door()
    threading.Timer(0.5, door.open).start()
    before = engine.stats.steps
    result = play(engine, 'await force(await call("door"))', {"door": door})
    assert (result.text, result.error) == ("through", None)
    assert engine.stats.steps - before < 20, "half a second of steps without sleep are thousands"


def test_another_thread_wakes_the_engine(engine: BatchingEngine) -> None:
    door = Door()
    number = engine.add(Request(PROMPT, **script('await call("door")'), calls={"door": door}))
    while not door.reached.is_set():
        engine.step()
    for _ in range(3):
        engine.step()  # until the sequence is known to wait
    engine.wake()
    engine.step()  # returns at once
    engine.cancel(number)
    door.open()
    assert engine.results(number)[0].finish_reason is FinishReason.CANCELLED


def test_a_cancelled_request_cancels_its_calls(engine: BatchingEngine, runtime: Runtime) -> None:
    ended = threading.Event()
    told: list[CallEvent] = []

    def handle(_: Any, event: CallEvent) -> None:
        told.append(event)
        if event.code is not None:
            ended.set()

    with runtime.answerer.offer([{"name": "ask"}], handle) as offer:
        number = engine.add(Request(PROMPT, **script('await call("ask", a=1)'), calls=offer.token))
        while not told:
            engine.step()
        engine.cancel(number)
        assert ended.wait(PATIENCE)
        assert not offer.answer(told[0].id, "too late")
    engine.results(number)
    first, last = told
    assert (first.name, json.loads(first.arguments), first.mine, first.code) == ("ask", {"a": 1}, True, None)
    assert (last.id, last.code) == (first.id, "cancelled")


def test_a_dead_worker_ends_waiting_sequences(model: Any, vocabulary: Vocabulary) -> None:
    door = Door()
    with (
        Runtime(workers=1) as runtime,
        make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine,
    ):
        number = engine.add(Request(PROMPT, **script('await call("door")'), calls={"door": door}))
        while not door.reached.is_set():
            engine.step()
        os.kill(runtime.health()["workers"][0]["pid"], signal.SIGKILL)
        engine.run()
        door.open()
        (result,) = engine.results(number)
        assert result.error is not None and result.error.code == "worker_died"


def test_the_offer_of_a_request_ends_with_it(engine: BatchingEngine, runtime: Runtime) -> None:
    """Also if nobody fetches its results, and if its controller cannot be placed."""
    known = dict(runtime.answerer._handlers)
    with pytest.raises(AiciError):
        engine.add(Request(PROMPT, controller="nobody", calls={"two": lambda: 2}))
    assert runtime.answerer._handlers == known
    number = engine.add(Request(PROMPT, **script('print(await call("two"))'), calls={"two": lambda: 2}))
    assert len(runtime.answerer._handlers) == len(known) + 1
    engine.run()
    assert runtime.answerer._handlers == known
    assert engine.results(number)[0].log == "2\n"


def test_a_withdrawn_offer_answers_with_an_error(engine: BatchingEngine, runtime: Runtime) -> None:
    asked = threading.Event()
    offer = runtime.answerer.offer([{"name": "ask"}], lambda *_: asked.set())
    body = """
try:
    await call("ask")
except CallError as error:
    print(error.code)
try:
    await call("ask")
except CallError as error:
    print(error.code)
"""
    number = engine.add(Request(PROMPT, **script(body), calls=offer.token))
    while not asked.is_set():
        engine.step()
    offer.close()
    engine.run()
    (result,) = engine.results(number)
    assert (result.log, result.error) == ("gone\ngone\n", None)


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("for i in range(9): await call('ok')", "call_limit", "max_calls"),
        ("call('no', 'x' * 1000)", "call_limit", "max_call_bytes"),
        ("for i in range(8): call('door', 'x' * 700)", "call_limit", "max_queued_call_bytes"),
    ],
    ids=["number", "arguments", "queue"],
)
def test_limits_on_calls_end_the_request(engine: BatchingEngine, body: str, code: str, says: str) -> None:
    door = Door()
    try:
        result = play(engine, body, {"door": lambda *_: door(), "ok": int})
    finally:
        door.open()
    assert result.error is not None
    assert (result.error.code, says in result.error.message) == (code, True), result.error


def test_further_calls_wait_for_others_to_end(engine: BatchingEngine) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def ask(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return n

    result = play(engine, "print(await gather(*[call('ask', n=i) for i in range(8)]))", {"ask": ask})
    assert (result.log, result.error) == ("[0, 1, 2, 3, 4, 5, 6, 7]\n", None)
    assert most <= LIMITS["calls_under_way"]


def test_room_for_answers(engine: BatchingEngine) -> None:
    """Answers that were read make room; those that were not are kept, and later ones get no room."""
    body = """
first = await call("text", n=2000)
again = call("text", n=2000)
print(len(await again), len(await again))
both = [call("text", n=2000), call("text", n=2000)]
while not (both[0].done and both[1].done):
    await sleep(0.001)
for each in both + [call("text", n=3000)]:
    try:
        print(len(await each))
    except CallError as error:
        print(error.code, error)
"""
    result = play(engine, body, {"text": lambda n: "x" * n})
    lines = result.log.splitlines()
    assert result.error is None and lines[0] == "2000 2000"
    assert sum(line == "2000" for line in lines[1:]) == 1, lines
    assert any("max_result_bytes" in line for line in lines), lines
    assert lines[-1].startswith("too_long the answer has 30"), lines
    assert "answer_bytes" in lines[-1]
