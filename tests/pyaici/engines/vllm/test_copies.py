"""`n` above 1: one controller processes the prompt, and its copies share its variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aicirt.contract.errors import ControllerFailed, UnknownModuleError
from pyaici import VllmEngine
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Event, FinishReason, Forked, GenerationResult, Request, Sampling, Started
from tests.pyaici.engines.vllm.requests import FRANCE, parameters
from tests.thorough import also

pytestmark = pytest.mark.slow

REQUESTS = [
    Request(FRANCE, "register", "0", n=3, max_tokens=4),
    Request(FRANCE, "register", "40", n=2, max_tokens=4),
    Request("Once", "register", "0", max_tokens=30),
    Request(FRANCE, "register", "refuse", n=3, max_tokens=4),
]


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("register")


def summary(results: list[GenerationResult]) -> list[Any]:
    return [(r.tokens, r.reason, str(r.error), r.variables if r.error is None else None) for r in results]


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> list[Any]:
    guests("register")
    return summary(hf.run(REQUESTS))


@pytest.mark.parametrize("configuration", ["async", "processes", *also("sync", "async-no-prefix-cache")])
def test_copies_give_what_they_give_on_transformers(llm: Any, expected: list[Any]) -> None:
    events: list[Event] = []
    results = VllmEngine(llm).run(REQUESTS, events.append)
    assert summary(results) == expected
    assert [r.variables for r in results[:3]] == [{"prompts": b"x", "begun": b"xxx"}] * 3
    assert [type(r.error) for r in results[6:]] == [ControllerFailed] * 3
    begun = {event.request for event in events if isinstance(event, Started)}
    assert len(begun) == sum(isinstance(event, Started) for event in events) == 4
    assert sum(len(event.children) for event in events if isinstance(event, Forked)) == 1 + 2 + 2
    assert all(event.by_engine for event in events if isinstance(event, Forked))


def test_copies_sample_on_their_own_and_repeat_with_a_seed(llm: Any) -> None:
    engine = VllmEngine(llm)
    request = Request(FRANCE, "register", "0", Sampling(1.5, seed=4), n=3, max_tokens=8)
    first, again = ([r.new_tokens for r in engine.run([request])] for _ in range(2))
    assert first == again and len(set(map(tuple, first))) == 3


def test_copies_of_a_controller_that_cannot_start_fail_too(llm: Any) -> None:
    results = VllmEngine(llm).run([Request(FRANCE, "rejex", n=3)])
    assert [type(result.error) for result in results] == [UnknownModuleError] * 3


def test_a_request_that_ends_before_its_copies_leaves_nothing(llm: Any, runtime: Runtime) -> None:
    engine = VllmEngine(llm)
    slow = engine.add(Request(FRANCE, "register", "2000", n=3))
    mate = engine.add(Request(FRANCE, max_tokens=3))
    while engine.busy:
        engine.step()
        if len(engine._families.unfinished) == 1 and slow in engine._families.unfinished:
            engine.cancel(slow)
    assert [result.reason for result in engine.results(slow)] == [FinishReason.CANCELLED]
    assert len(engine.results(mate)[0].new_tokens) == 3
    (fine,) = engine.run([Request(FRANCE, "register", "0", max_tokens=1)])
    assert fine.error is None
    assert [worker["sequences"] for worker in runtime.health()["workers"]] == [0]


def test_more_copies_than_choices_are_refused(llm: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    keys = {"aici_controller": "register", "aici_arg": "0", "aici_fork": True, "aici_copies": 3}
    request = parameters(extra_args=keys, n=2, temperature=1.0, top_k=1, max_tokens=3)
    with pytest.raises(
        VLLMValidationError, match=r"aici_copies is 3, but the request has only 2 choices \(n\)"
    ):
        llm.generate([FRANCE], [request], use_tqdm=False)
