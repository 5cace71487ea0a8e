"""The engine with the real runtime: guests in WebAssembly, in separate processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import (
    AiciError,
    EmptyMaskError,
    ProtocolError,
    ResultError,
    TrapError,
    WorkerDiedError,
)
from lab.system.processes import stopped
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import (
    Event,
    FinishReason,
    GenerationResult,
    Origin,
    Request,
    Sampling,
    VariablesChanged,
)
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.support import BOS, EOS, CountingPasses, make_engine
from tests.thorough import also

Generate = Callable[..., list[int]]
PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
GUEST = Path(__file__).resolve().parents[3] / "guests" / "guest.c"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUEST, tmp_path_factory.mktemp("guest") / "guest.wasm").path


@pytest.fixture(scope="module")
def runtime(guest: Path) -> Iterator[Runtime]:
    # `prompt_slow 300` takes a second on a slow machine, which is the default limit
    limits = {"max_suspended_steps": 5, "max_late_steps": 1000, "init_ms": 60_000}
    with Runtime(workers=1, limits=limits) as runtime:
        runtime.tag(runtime.upload(guest).id, "guest")
        yield runtime


@pytest.fixture
def play(runtime: Runtime, model: Any, vocabulary: Vocabulary, generate: Generate) -> Callable[..., Any]:
    """Runs the guest with some arguments, next to a well-behaved guest and a request without a controller."""
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)

    def run(*args: str, **request: Any) -> list[list[GenerationResult]]:
        options: dict[str, Any] = {"max_tokens": 6, "controller": "guest"} | request
        numbers = [engine.add(Request(PROMPT, arg=arg, **options)) for arg in args]
        good = engine.add(Request(PROMPT, arg="ok", controller="guest", max_tokens=12))
        mate = engine.add(Request(MATE, max_tokens=12))
        engine.run()
        assert engine.results(mate)[0].new_tokens == generate(MATE, 12)
        assert [set(masks(s)) >= {t} for s, t in enumerate(engine.results(good)[0].new_tokens)] == [True] * 12
        return [engine.results(number) for number in numbers]

    return run


def masks(step: int) -> tuple[int, int]:
    """Returns the tokens that the guest allows in a step, counted from 0."""
    return 1 + (step + 1) % 8, 20


def test_masks_reach_the_sampler_row_by_row(play: Any) -> None:
    for sampling in (Sampling(), Sampling(3.0, seed=1)):
        for (result,) in play("ok", "ok", "ok", sampling=sampling, max_tokens=30):
            assert len(result.new_tokens) == 30
            assert all(token in masks(step) for step, token in enumerate(result.new_tokens))


def test_rows_of_every_kind(play: Any, generate: Generate) -> None:
    (everything,), (token,), (sparse,), (dense,) = play("all", "token 42", "sparse 9", "dense")
    first = everything.new_tokens[0]
    assert first in masks(0) and everything.new_tokens[1:] == generate([*PROMPT, first], 5)
    assert token.new_tokens[1:] == [42] * 5
    assert set(sparse.new_tokens[1:]) <= {3, 9}
    assert all(250 < t <= EOS for t in dense.new_tokens[1:]), (
        "the bias of token t is t, and ids above EOS are no tokens"
    )


def test_requests_name_bundled_controllers_and_pass_json(
    model: Any, vocabulary: Vocabulary, runtime: Runtime
) -> None:
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    requests = [
        Request(PROMPT, controller="json_schema", arg={"enum": ["red"]}),
        Request(PROMPT, controller="choice", arg=["green"]),
    ]
    assert [result.text for result in engine.run(requests)] == ['"red"', "green"]


def test_variables_are_reported_in_events_and_results(
    model: Any, vocabulary: Vocabulary, runtime: Runtime, tmp_path: Path
) -> None:
    wasm = build_controller(GUEST.with_name("writer.c"), tmp_path / "writer.wasm").path
    module = runtime.upload(wasm).id
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    events: list[Event] = []
    requests = [
        Request(PROMPT, module, "!omfbs"),
        Request(PROMPT, module, "aom", max_tokens=3),
        Request(PROMPT, module, "at"),
        Request(PROMPT, module, "as", n=2),
        Request(PROMPT, module, "a", max_tokens=2),
        Request(PROMPT, max_tokens=2),
    ]
    results = engine.run(requests, events.append)
    everything = {
        "prompt": b"read",
        "post": b"done",
        "mid": b"last",
        "first": b"here",
        "second": b"here",
        "\\xff_\u00e9": b"odd",
    }
    assert [result.variables for result in results] == [
        everything,
        everything,
        {"post": b"done"},
        {"mid": b"last"},
        {"mid": b"last"},
        {"mid": b"last"},
        {},
        {},
    ], "post_process, if there is one, must receive the last token"
    reported: dict[int, dict[str, bytes]] = {}
    for event in events:
        if isinstance(event, VariablesChanged):
            reported.setdefault(event.request, {}).update(event.values)
    assert reported == {result.request: result.variables for result in results if result.variables}


@pytest.mark.parametrize(
    ("how", "n"),
    [
        *[("evicted", 2), ("killed", 1), ("killed after the prompt", 2)],
        *also(("evicted", 1), ("killed", 2), ("killed after the prompt", 1)),
    ],
)
def test_a_controller_that_has_not_started_is_placed_again(
    model: Any, vocabulary: Vocabulary, guest: Path, generate: Generate, how: str, n: int
) -> None:
    with Runtime(workers=1) as runtime:
        runtime.tag(runtime.upload(guest).id, "guest")
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        request = Request(PROMPT, controller="guest", arg="ok", max_tokens=6, n=n)
        where = engine.place(request)
        assert where is not None
        if how == "evicted":
            where = replace(where, template=where.template + 1000)
        with stopped(runtime) as worker:
            number = engine.add(request, where)
            mate = engine.add(Request(MATE, max_tokens=12))
            if how == "killed after the prompt":
                engine.step()
                assert engine.stats.sampled == 1, "only the mate's"
            if how != "evicted":
                os.kill(worker, signal.SIGKILL)
        engine.run()
        for result in engine.results(number):
            assert result.error is None
            assert [token in masks(step) for step, token in enumerate(result.new_tokens)] == [True] * 6
        assert engine.results(mate)[0].new_tokens == generate(MATE, 12)
        assert not runtime._live and not engine._pool._placing


def test_a_controller_is_placed_again_only_once(model: Any, vocabulary: Vocabulary, guest: Path) -> None:
    with Runtime(workers=1) as runtime:
        runtime.tag(runtime.upload(guest).id, "guest")
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        number = engine.add(Request(PROMPT, controller="guest", arg="ok"))
        cancelled = engine.add(Request(PROMPT, controller="guest", arg="ok"))
        with stopped(runtime) as worker:
            os.kill(worker, signal.SIGKILL)
        while not engine._pool._placing:
            engine.step()
        first, second = engine._pool._placing
        assert first.placing is not None and second.placing is not None
        engine.cancel(cancelled)
        wait([first.placing, second.placing])
        with stopped(runtime) as worker:
            while first.control is None:
                engine.step()
            os.kill(worker, signal.SIGKILL)
        engine.run()
        assert isinstance(engine.results(number)[0].error, WorkerDiedError)
        assert engine.results(cancelled)[0].finish_reason is FinishReason.CANCELLED


def test_the_owner_of_a_request_is_passed_to_the_runtime(
    model: Any, vocabulary: Vocabulary, runtime: Runtime
) -> None:
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    with pytest.raises(ProtocolError, match="an owner's name has"):
        engine.add(Request(PROMPT, "guest", "ok", owner="x" * 65))


def test_splices(play: Any) -> None:
    (forward,), (back,) = play("splice 0", "splice 1")
    assert forward.new_tokens[1:] == [7, 8, 7, 8, 7] and forward.origins[-5:] == [Origin.FORCED] * 5
    assert back.new_tokens == [7, 7, 7, 7, 7, 8] and back.backtracked == 5
    (result,) = play("splice 4000")[0]
    assert isinstance(result.error, ResultError) and result.finish_reason is FinishReason.ERROR


def test_forks(play: Any) -> None:
    (results,) = play("fork 3")
    assert [r.error for r in results] == [None] * 3
    assert len({r.new_tokens[0] for r in results}) == 1
    assert [r.parent for r in results] == [None, results[0].seq, results[0].seq]
    assert all(token in masks(step) for r in results for step, token in enumerate(r.new_tokens))


def test_reports_reach_the_guest(play: Any) -> None:
    (result,) = play("report", max_tokens=3, sampling=Sampling(0.7, seed=4))[0]
    lines = result.log.splitlines()
    assert len(lines) == 3, "the last token must be reported too"
    for line, token, logprob in zip(lines, result.new_tokens, result.logprobs[len(PROMPT) :], strict=True):
        assert line.startswith(f"post: -0 +1 first {token} sampled 1 logprob {logprob:.2f} mass 0.")


@pytest.mark.parametrize(
    ("arg", "error"),
    [
        ("mid_trap", TrapError),
        ("mid_empty_mask", EmptyMaskError),
        ("mid_bad_row", ResultError),
        ("pre_trap", TrapError),
    ],
)
def test_a_guest_that_fails_ends_only_its_own_sequence(play: Any, arg: str, error: type[AiciError]) -> None:
    (result,) = play(arg)[0]
    assert result.finish_reason is FinishReason.ERROR and isinstance(result.error, error)
    assert len(result.new_tokens) == 1


def test_the_engine_goes_on_while_init_prompt_runs(play: Any) -> None:
    (slow,), (refused,), (both, other) = (
        *play("prompt_slow 100", "prompt_refuse"),
        *play("prompt_slow 20", n=2, sampling=Sampling(4.0, seed=2)),
    )
    assert slow.finish_reason is FinishReason.LENGTH and slow.new_tokens[0] in masks(0)
    assert refused.finish_reason is FinishReason.ERROR and "aici_init_prompt returned 1" in str(refused.error)
    assert refused.new_tokens == []
    assert both.error is None and other.error is None


def test_the_engine_goes_on_while_init_prompt_runs_before_copies(
    model: Any, vocabulary: Vocabulary, runtime: Runtime
) -> None:
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    slow = engine.add(Request(PROMPT, "guest", "prompt_slow 300", n=3, max_tokens=2))
    search = engine.add(Request(PROMPT, "guest", "prompt_slow 300", beams=2, n=2, max_tokens=2))
    mate = engine.add(Request(MATE, max_tokens=2))
    engine.step()
    assert [seq.new_tokens for seq in engine._pool.live.values()] == [0, 0, 1], "no copies yet, and no wait"
    engine.run()
    assert [len(result.new_tokens) for result in engine.results(slow)] == [2, 2, 2]
    assert [len(result.new_tokens) for result in engine.results(search)] == [2, 2]
    assert len(engine.results(mate)[0].new_tokens) == 2
    ended = engine.add(Request(PROMPT, "guest", "prompt_slow 300", n=3))
    engine.cancel(ended)
    (result,) = engine.results(ended)
    assert result.finish_reason is FinishReason.CANCELLED
    assert not runtime._live and not runtime._live.copying


def test_stop_and_suspend(play: Any) -> None:
    (stops,), (suspends,) = play("mid_return_stop", "suspend")
    assert stops.finish_reason is FinishReason.STOP and len(stops.new_tokens) == 1
    assert suspends.finish_reason is FinishReason.ERROR, "endless suspension is a deadlock"


def test_a_slow_guest_is_late_and_goes_on(
    guest: Path, model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    limits = {"mid_ms": 5, "max_late_steps": 1000, "step_deadline_ms": 60_000}
    with Runtime(workers=1, limits=limits) as runtime:
        module = runtime.upload(guest).id
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        slow = engine.add(Request(PROMPT, controller=module, arg="mid_slow 30", max_tokens=4))
        mate = engine.add(Request(MATE, max_tokens=12))
        engine.run()
        assert runtime.health()["workers"][0]["counters"]["late"] > 0
        (result,) = engine.results(slow)
        assert (result.finish_reason, result.error) == (FinishReason.LENGTH, None)
        assert all(token in masks(step) for step, token in enumerate(result.new_tokens))
        assert engine.results(mate)[0].new_tokens == generate(MATE, 12)


def test_copies_and_beams_made_by_the_engine_follow_their_masks(play: Any, runtime: Runtime) -> None:
    (copies,) = play("ok", n=3, sampling=Sampling(4.0, seed=2))
    assert len({tuple(r.tokens) for r in copies}) == 3
    (beams,) = play("ok", beams=3, n=3)
    assert len({tuple(r.tokens) for r in beams}) == 3
    for result in [*copies, *beams]:
        assert result.error is None
        assert all(token in masks(step) for step, token in enumerate(result.new_tokens))


def test_a_killed_worker_ends_only_its_own_sequences(
    guest: Path, model: Any, vocabulary: Vocabulary, generate: Generate
) -> None:
    with Runtime(workers=1) as runtime:
        module = runtime.upload(guest).id
        engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
        lost = engine.add(Request(PROMPT, controller=module, arg="ok"))
        mate = engine.add(Request(MATE, max_tokens=12))
        while len(engine._pool.live[0].tokens) == len(PROMPT):  # until its controller has answered
            engine.step()
        for link in runtime._links.all:
            os.kill(link.pid, signal.SIGKILL)
        engine.run()
        (result,) = engine.results(lost)
        assert isinstance(result.error, WorkerDiedError)
        assert engine.results(mate)[0].new_tokens == generate(MATE, 12)


def test_the_rest_of_a_prompt_is_not_fed_after_the_death_of_its_worker(
    guest: Path, long_model: Any, vocabulary: Vocabulary
) -> None:
    with Runtime(workers=1) as runtime:
        module = runtime.upload(guest).id
        engine = make_engine(long_model, runtime=runtime, vocabulary=vocabulary)
        lost = engine.add(Request([1 + i % 200 for i in range(2000)], controller=module, arg="ok"))
        engine.step()
        for link in runtime._links.all:
            os.kill(link.pid, signal.SIGKILL)
            while not link.gone:
                time.sleep(0.001)
        with CountingPasses(engine) as fed:
            engine.step()
        assert fed.passes == [] and engine.busy, "its controller is being placed again"
        engine.run()
        assert engine.results(lost)[0].error is None


def test_each_step_runs_one_forward_pass(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> None:
    engine = make_engine(model, runtime=runtime, vocabulary=vocabulary)
    with CountingPasses(engine) as fed:
        results = engine.run([Request(PROMPT, controller="guest", arg="fork 3", max_tokens=4)])
    assert [r.error for r in results] == [None] * 3
    assert fed.passes == [[4], [1], [1] * 3, [1] * 3]
