"""Waiting sequences give their room in the cache to others, and get room again when they go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.system.waiting import PATIENCE, Door
from pyaici.client.runtime import Runtime
from pyaici.engines.batching import pool
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import FinishReason, GenerationResult, Request
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, count_slots, make_engine, script

#: room for four sequences of the tiny model's 256 tokens of context
FOUR = 1024
WAITING = 'await gen(max_tokens=8)\nawait force(await call("door"))\nawait gen(max_tokens=4)'


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1) as runtime:
        yield runtime


@pytest.fixture
def engine(
    runtime: Runtime, model: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BatchingEngine]:
    monkeypatch.setattr(pool, "KEEP_SECONDS", 0.0)
    with make_engine(model, runtime=runtime, vocabulary=vocabulary, cache_tokens=FOUR) as engine:
        yield engine


def waiting(number: int, door: Callable[[], str]) -> Request:
    """Returns a request whose controller waits for a door after some tokens, and may use a quarter."""
    prompt = [BOS, *range(40 + number, 100 + number)]
    return Request(prompt, **script(WAITING), calls={"door": door}, max_tokens=190)


def finished(engine: BatchingEngine, number: int) -> GenerationResult:
    (result,) = engine.results(number)
    assert result.error is None
    return result


def test_others_get_the_room_of_those_that_wait(
    engine: BatchingEngine, generate: Callable[..., list[int]]
) -> None:
    """Eleven wait where four have room; what they write is what they write alone."""
    alone = []
    for number in range(11):
        single = engine.add(waiting(number, lambda: "through"))
        engine.run()
        alone.append(finished(engine, single).text)
    doors = [Door() for _ in range(11)]
    numbers = [engine.add(waiting(number, door)) for number, door in enumerate(doors)]
    while not all(door.reached.is_set() for door in doors):
        engine.step()
    free = engine.add(Request([BOS, 1, 2, 3], max_tokens=200))
    while engine._pool.unfinished(free):
        engine.step()
    assert finished(engine, free).new_tokens == generate([BOS, 1, 2, 3], 200)
    read_again = engine.stats.read_again
    for door in reversed(doors):
        door.open()
    engine.run()
    assert [finished(engine, number).text for number in numbers] == alone
    # the cache may still have some of those texts, and has lost others
    assert 68 <= engine.stats.read_again - read_again <= 11 * 68
    assert engine._budget.claimed == 0


def test_short_texts_are_kept_for_a_short_time(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many that have just begun to wait hold up others only for as long as reading them again takes."""
    monkeypatch.setattr(pool, "KEEP_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(pool, "_PART", 1e-9)
    doors = [Door() for _ in range(9)]
    numbers = [engine.add(waiting(number, door)) for number, door in enumerate(doors)]
    while not all(door.reached.is_set() for door in doors):
        engine.step()
    monkeypatch.setattr(pool, "_PART", 1.0)
    engine.add(Request([BOS, 1, 2, 3], max_tokens=200))
    for _ in range(20):
        engine._pool.admit()
    assert engine._pool.seconds_to_room > PATIENCE
    monkeypatch.setattr(pool, "_PART", 1e-9)
    for door in doors:
        door.open()
    engine.run()
    assert all(finished(engine, number).error is None for number in numbers)


def test_forks_that_wait_have_no_limit_in_the_cache(engine: BatchingEngine) -> None:
    body = """
await gen(max_tokens=4)
for i in range(9):
    if await fork(2) == 1:
        await force(str(i) + await call("door"))
        stop()
await call("open")
"""
    door = Door()
    calls = {"door": door, "open": door.open}
    number = engine.add(Request([BOS, 1, 2], **script(body), calls=calls, max_tokens=250))
    engine.run()
    results = engine.results(number)
    assert [result.error for result in results] == [None] * 10
    assert sorted(result.text[-8:] for result in results[1:]) == [f"{i}through" for i in range(9)]


def test_whoever_gave_room_back_can_be_cancelled(engine: BatchingEngine) -> None:
    doors = [Door() for _ in range(8)]
    numbers = [engine.add(waiting(number, door)) for number, door in enumerate(doors)]
    while not all(door.reached.is_set() for door in doors):
        engine.step()
    assert engine.parked_requests() <= set(numbers)
    while engine.parked_requests() != set(numbers):
        engine.step()
    for door in doors[4:]:
        door.open()
    for number in numbers[:6]:
        engine.cancel(number)
    engine.run()
    reasons = [engine.results(number)[0].finish_reason for number in numbers]
    assert reasons[:6] == [FinishReason.CANCELLED] * 6 and FinishReason.CANCELLED not in reasons[6:]
    for door in doors[:4]:
        door.open()
    assert engine._budget.claimed == 0 and not engine.busy
    engine.close()
    assert count_slots(engine) == 0


def test_forks_that_wait_take_bounded_memory(engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_OWNER_TOKENS", 400)
    prompt = [BOS, *range(40, 100)]
    forks = script("if await fork(8):\n    await sleep(1000)\nawait force('a')")
    eve = engine.add(Request(prompt, **forks, max_tokens=100, owner="eve"))
    while engine._pool.unfinished(eve) != 5:  # the root and two forks have ended
        engine.step()
    assert sum(len(seq.tokens) for seq in engine._pool.live.values()) <= 400
    ann = engine.add(
        Request(prompt, **script("await fork(2)\nawait force('a')"), max_tokens=100, owner="ann")
    )
    while engine._pool.unfinished(ann):
        engine.step()
    assert [result.error for result in engine.results(ann)] == [None, None]
    engine.cancel(eve)
    errors = [str(result.error) for result in engine.results(eve) if result.error is not None]
    assert len(errors) == 2 and all("at most 400 are kept while they wait" in error for error in errors)


def test_prompts_are_compared_with_texts_in_the_cache_only(engine: BatchingEngine) -> None:
    number = engine.add(waiting(0, Door()))
    while not any(seq.parked is not None for seq in engine._pool.live.values()):
        engine.step()
    assert len(engine._pool.cached()) == 1
    engine._pool._give_back(math.inf)
    assert engine._pool.cached() == [] and len(engine._pool.live) == 1
    engine.cancel(number)
