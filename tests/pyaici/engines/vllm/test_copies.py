"""`n` above 1: one controller processes the prompt, and its copies share its variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aicirt.contract.errors import ControllerFailed, UnknownControllerError
from pyaici import VllmEngine
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Event, FinishReason, Forked, GenerationResult, Request, Sampling, Started
from pyaici.engines.vllm.scheduling import driver
from pyaici.engines.vllm.scheduling.groups import Groups, index_of
from pyaici.scripting.script import read_request
from tests.pyaici.engines.vllm.requests import FRANCE, parameters, scheduler_of
from tests.pyaici.engines.vllm.test_engine import replay
from tests.thorough import also, cases

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

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
    return [
        (r.tokens, r.finish_reason, str(r.error), r.variables if r.error is None else None) for r in results
    ]


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> list[Any]:
    guests("register")
    return summary(hf.run(REQUESTS))


@pytest.mark.parametrize("configuration", ["async", *also("processes", "sync", "async-no-prefix-cache")])
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


#: by what happens in the first step of each copy
SCRIPTS = {
    "gather": """
async def attempt():
    return await gen(regex=" [A-Z][a-z]{2,9}", max_tokens=4)
async def main():
    await force(f" {await gather(attempt, attempt)}")
""",
    "forks of forks": """
async def main():
    mine = await fork(2), await fork(2)
    await force(f" {mine}:")
    await gen(regex=" [a-z]{3,6}", max_tokens=4)
""",
    "a splice": """
async def main():
    await force(" the city of")
    mine = await fork(2)
    await force(f" {mine}:")
    await gen(regex=" [a-z]{3,6}", max_tokens=4)
""",
    "a fork that waits": """
async def main():
    if await fork(2):
        await wait("word")
        await force(get_var("word"))
    else:
        set_var("word", await gen(regex=" [A-Z][a-z]{2,9}", max_tokens=4))
    await fork(2)
    await gen(regex=", [a-z]{3,6}", max_tokens=4)
""",
    "an end": """
async def main():
    if await fork(3) == 1:
        stop()
    if await fork(2) == 1:
        fail("no more")
    await gen(regex=" [a-z]{3,6}", max_tokens=4)
""",
    "the least number of tokens": """
async def main():
    await fork(2)
    await gen(max_tokens=3)
    await fork(2)
    await gen(max_tokens=12)
""",
}
SCRIPT_HEAD = "from aici import fail, force, fork, gather, gen, get_var, set_var, stop, wait\n"
#: arguments of the acrobat, by what it does in its first step
ACROBATS = {"fork": (19, 33, 50, 117), "suspend": (22, 3, 0, 36), "splice": (23, 1, 4, 2)}


def forking(eos: int) -> list[Request]:
    """Returns requests whose controllers fork, with two or three copies each."""
    requests = []
    for name, source in SCRIPTS.items():
        module, arg = read_request({"language": "python", "source": SCRIPT_HEAD + source})
        limited = name == "the least number of tokens"
        sampling = Sampling(min_tokens=6, logit_bias=((eos, 100.0),)) if limited else Sampling()
        copies = 2 + len(requests) % 2
        requests.append(Request(FRANCE, module, arg, sampling, n=copies, max_tokens=60, logprobs=True))
    for number, seed in enumerate(seed for seeds in ACROBATS.values() for seed in seeds):
        requests.append(Request(FRANCE, "acrobat", str(seed), n=2 + number % 2, max_tokens=40))
    return requests


def families(results: list[GenerationResult]) -> list[Any]:
    """Returns what does not depend on the numbers of sequences, with the texts of parents."""
    first = min(r.request for r in results)
    texts = {r.seq: r.text for r in results}
    return sorted(
        (
            *(r.request - first, r.tokens, [o.value for o in r.origins], r.finish_reason.value, str(r.error)),
            "" if r.parent is None else texts[r.parent],
        )
        for r in results
    )


def forks_of(events: list[Event]) -> Counter[tuple[int, bool]]:
    """Returns how many sequences of each request the engine has copied, and the controllers have forked."""
    first = min(event.request for event in events)
    forks: Counter[tuple[int, bool]] = Counter()
    for event in events:
        if isinstance(event, Forked):
            forks[event.request - first, event.by_engine] += len(event.children)
    return forks


@pytest.fixture(scope="session")
def forked(hf: Any, guests: Callable[..., None]) -> tuple[Any, ...]:
    """Requests whose copies fork, their results on Transformers, and the forks there."""
    guests("acrobat")
    requests, events = forking(hf.vocabulary.eos[0]), list[Event]()
    results = families(hf.run(requests, events.append))
    assert not any("the limit is" in result[4] for result in results), "engines reach limits in other orders"
    return requests, results, forks_of(events)


@pytest.mark.parametrize(
    ("configuration", "late"),
    [
        *[("async", False), ("async", True)],
        *also(("processes", False), ("sync", False), ("async-no-prefix-cache", True)),
    ],
)
def test_copies_that_fork_give_what_they_give_on_transformers(
    llm: Any, forked: tuple[Any, ...], late: bool, configuration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`late`: no step waits for copies, so that they begin after their original."""
    if late:
        monkeypatch.setattr(driver, "_COPY_SECONDS", 0.0)
    requests, expected, forks = forked
    # an engine in processes of its own has two seats, and is slow
    most = cases(2, len(requests)) if configuration == "processes" else len(requests)
    events = list[Event]()
    results = VllmEngine(llm).run(requests[:most], events.append)
    replay(events, results)
    assert families(results) == [result for result in expected if result[0] < most]
    assert forks_of(events) == {key: count for key, count in forks.items() if key[0] < most}
    logprobs: dict[str, list[float]] = {}
    for result in results:  # sequences with the same tokens under the same masks
        known = logprobs.setdefault(str((result.request, result.tokens, result.origins)), result.logprobs)
        assert result.logprobs == pytest.approx(known, abs=1e-3, nan_ok=True)


def test_forks_wait_for_requests_that_vllm_adds_late(
    llm: Any, forked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequence goes on while its fork waits, and the fork begins with what it had written before."""
    scheduler = scheduler_of(llm)
    add, schedule, late = scheduler.add_request, scheduler.schedule, list[Any]()

    def add_later(request: Any) -> None:
        (late.append if index_of(request.request_id) else add)(request)

    def add_and_schedule(*args: Any, **keywords: Any) -> Any:
        for group in scheduler._aici.groups._expecting:
            if any(birth.steps == 2 for birth in group.births):
                root = group.births[0].request.request_id.partition("_")[2]
                for request in [each for each in late if each.request_id.endswith(f"_{root}")]:
                    late.remove(request)
                    add(request)
        return schedule(*args, **keywords)

    monkeypatch.setattr(scheduler, "add_request", add_later)
    monkeypatch.setattr(scheduler, "schedule", add_and_schedule)
    requests, expected, forks = forked
    events = list[Event]()
    results = VllmEngine(llm).run(requests, events.append)
    replay(events, results)
    assert families(results) == expected
    assert forks_of(events) == forks
    assert not late


def test_cancelled_copies_that_wait_for_a_request_leave_nothing(
    llm: Any, forked: tuple[Any, ...], runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children of copies wait too: vLLM may add the requests of the choices in several steps."""
    monkeypatch.setattr(Groups, "place_children", lambda *_: None)
    engine, groups = VllmEngine(llm), scheduler_of(llm)._aici.groups
    waiting = engine.add(forked[0][1])
    while not any(birth.parent.by_engine for group in groups._expecting for birth in group.births):
        engine.step()
    engine.cancel(waiting)
    monkeypatch.undo()
    (fine,) = engine.run([Request(FRANCE, "register", "0", max_tokens=1)])
    assert fine.error is None and not groups._groups
    assert [worker["sequences"] for worker in runtime.health()["workers"]] == [0]


def test_copies_sample_on_their_own_and_repeat_with_a_seed(llm: Any) -> None:
    engine = VllmEngine(llm)
    request = Request(FRANCE, "register", "0", Sampling(1.5, seed=4), n=3, max_tokens=8)
    first, again = ([r.new_tokens for r in engine.run([request])] for _ in range(2))
    assert first == again and len(set(map(tuple, first))) == 3


def test_copies_of_a_controller_that_cannot_start_fail_too(llm: Any) -> None:
    results = VllmEngine(llm).run([Request(FRANCE, "rejex", n=3)])
    assert [type(result.error) for result in results] == [UnknownControllerError] * 3


def test_a_request_that_ends_before_its_copies_leaves_nothing(llm: Any, runtime: Runtime) -> None:
    engine = VllmEngine(llm)
    slow = engine.add(Request(FRANCE, "register", "2000", n=3))
    mate = engine.add(Request(FRANCE, max_tokens=3))
    while engine.busy:
        engine.step()
        if len(engine._families.unfinished) == 1 and slow in engine._families.unfinished:
            engine.cancel(slow)
    assert [result.finish_reason for result in engine.results(slow)] == [FinishReason.CANCELLED]
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
