"""Messages between runs of one user, with real engines: order, names, time-outs, forks, and limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import FinishReason, Request
from pyaici.errors import OfferError, OwnerLimitError, UnknownRunError
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, make_engine, script

PROMPT = [BOS, 72, 101, 108]
#: small, so that tests reach them
LIMITS = {"answer_bytes": 2500, "owner_message_bytes": 5000, "receive_seconds": 1.0}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=2, limits=LIMITS) as runtime:
        yield runtime


@pytest.fixture
def engine(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        yield engine


def run(engine: BatchingEngine, *requests: Request) -> list[str]:
    """Runs requests together; returns what each prints."""
    numbers = [engine.add(request) for request in requests]
    engine.run()
    results = [engine.results(number)[0] for number in numbers]
    assert [result.error for result in results] == [None] * len(results)
    return [result.log for result in results]


def failing(line: str) -> str:
    """Returns lines of a script that print the code of the error of a line."""
    return f"try:\n    {line}\nexcept CallError as error:\n    print(error.code, error)"


PING = """
for i in range(3):
    await send("pong", {"number": i, "from": await call("aici.run")})
    print(await receive())
"""
PONG = {
    "python": """
for i in range(3):
    message = await receive()
    await send(message["from"], message["number"] * 10)
""",
    "javascript": """
for (let i = 0; i < 3; i++) {
  const message = await receive();
  await send(message.from, message.number * 10);
}
""",
}


@pytest.mark.parametrize("language", PONG)
@pytest.mark.parametrize("name", ["", "ping"])
def test_two_runs_talk(engine: BatchingEngine, language: str, name: str) -> None:
    """Lets a run without a name of its own find out what it is called."""
    pong = Request(PROMPT, **script(PONG[language], language), name="pong")
    assert run(engine, pong, Request(PROMPT, **script(PING), calls={}, name=name))[1] == "0\n10\n20\n"


def test_messages_wait_and_come_in_order(engine: BatchingEngine, runtime: Runtime) -> None:
    """Sends from the program, before the run receives anything."""
    number = engine.add(
        Request(PROMPT, **script("for i in range(3):\n    print(await receive())"), name="me")
    )
    for value in (None, {"a": [1.5, "ü"]}, "three"):
        runtime.answerer.send("me", value)
    engine.run()
    assert engine.results(number)[0].log == "None\n{'a': [1.5, '\\xfc']}\nthree\n"


def test_a_waiting_run_goes_on_with_a_message(engine: BatchingEngine, runtime: Runtime) -> None:
    """Takes no step meanwhile, and keeps the text."""
    body = 'await force("a")\nawait force(await receive())\nprint(await gen(max_tokens=1))'
    number = engine.add(Request(PROMPT, **script(body), name="me"))
    while not any(seq.parked is not None for seq in engine._pool.live.values()):
        engine.step()
    threading.Timer(0.1, partial(runtime.answerer.send, "me", "bc")).start()
    before = engine.stats.steps
    engine.run()
    (result,) = engine.results(number)
    assert (result.text[:3], result.error) == ("abc", None) and engine.stats.steps - before < 20


def test_a_timeout_does_not_lose_the_next_message(engine: BatchingEngine, runtime: Runtime) -> None:
    late = failing("await receive().wait(0.01)")
    body = f'{late}\nawait call("ready")\nprint(await receive(), await receive())'
    send = runtime.answerer.send
    ready = lambda: [send("me", word) for word in ("one", "two")]  # noqa: E731
    (log,) = run(engine, Request(PROMPT, **script(body), calls={"ready": ready}, name="me"))
    assert log == "timeout aici.receive has not answered within 0.01 s\none two\n"


def test_nobody_waits_for_ever(engine: BatchingEngine) -> None:
    (log,) = run(engine, Request(PROMPT, **script(failing("await receive()")), name="me"))
    assert log == "timeout no message came within 1 s (receive_seconds)\n"


def test_forks_share_what_they_wait_for_and_else_take_turns(engine: BatchingEngine, runtime: Runtime) -> None:
    body = """
first = receive()
mine = await fork(2)
print(mine, await first)
await call("ready")
set_var(f"{mine}", await receive())
"""
    both = threading.Barrier(2)
    said = iter(["x", "y"])

    def ready() -> None:
        both.wait()
        runtime.answerer.send("me", next(said))

    number = engine.add(Request(PROMPT, **script(body), calls={"ready": ready}, name="me"))
    runtime.answerer.send("me", "both")
    engine.run()
    results = engine.results(number)
    assert [result.log for result in results] == ["0 both\n", "1 both\n"]
    assert sorted(results[0].variables.values()) == [b"x", b"y"]


def test_errors_of_messages(engine: BatchingEngine, runtime: Runtime) -> None:
    lines = [
        failing('await send("nobody", 1)'),
        failing('await send("me", "x" * 3000)'),
        failing('await call("aici.send", {"run": 1, "value": 2})'),
        failing('await call("aici.send", [1])'),
        'for i in range(2):\n    await send("me", "x" * 2000)',
        failing('await send("me", "x" * 2000)'),
    ]
    (log,) = run(engine, Request(PROMPT, **script("\n".join(lines)), name="me"))
    codes = [line.partition(" ")[0] for line in log.splitlines()]
    assert codes == ["unknown_run", "owner_limit", "arguments", "arguments", "owner_limit"]
    assert "the limit is 5000 (owner_message_bytes)" in log
    for _ in range(2):  # nothing is left of them
        run(engine, Request(PROMPT, **script('await send("me", "x" * 2000)'), name="me"))


def test_names_belong_to_owners(engine: BatchingEngine, runtime: Runtime) -> None:
    """Nobody reaches the runs of others, and each may use the same name, once at a time."""
    waits = script("print(await receive())")
    numbers = [engine.add(Request(PROMPT, **waits, name="me", owner=owner)) for owner in ("ann", "bob")]
    with pytest.raises(OfferError, match="another run of yours has the name 'me'"):
        engine.add(Request(PROMPT, **waits, name="me", owner="ann"))
    runtime.answerer.send("me", "hello", owner="ann")
    with pytest.raises(UnknownRunError, match="no run of yours has the name 'me'"):
        runtime.answerer.send("me", "hello", owner="eve")
    while engine._pool.unfinished(numbers[0]):
        engine.step()
    assert engine.results(numbers[0])[0].log == "hello\n"
    engine.cancel(numbers[1])
    assert engine.results(numbers[1])[0].finish_reason is FinishReason.CANCELLED
    with pytest.raises(UnknownRunError):
        runtime.answerer.send("me", "hello", owner="bob")
    with pytest.raises(OwnerLimitError, match="answer_bytes"):
        runtime.answerer.send("me", "x" * 3000)
    with pytest.raises(ValueError, match="JSON"):
        runtime.answerer.send("me", float("nan"))
