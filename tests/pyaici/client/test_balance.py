"""Requests that move of their own accord, away from a worker that is too busy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.runtime import Runtime

from .conftest import VOCABULARY
from .twins import LEISURE

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def runtime(guest_wasm: Path, tmp_path: Path) -> Iterator[Runtime]:
    greedy = build_controller(ROOT / "bench" / "guests" / "greedy.c", tmp_path / "greedy.wasm").path
    with Runtime(workers=2, limits={**LEISURE, "max_late_steps": 100_000, "mid_ms": 20}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        runtime.tag(runtime.upload(greedy).id, "greedy")
        yield runtime


def places(runtime: Runtime, seqs: list[int]) -> Counter[int]:
    return Counter(runtime._live.link(seq).index for seq in seqs)


def crowd(runtime: Runtime, count: int) -> tuple[int, list[int]]:
    """A sequence that takes all the time of its worker, and others beside it."""
    greedy = runtime.instantiate("greedy", "0 -1")
    busy = runtime._live.link(greedy).index
    seqs = [runtime.instantiate("guest", "ok") for _ in range(2 * count)]
    beside = [seq for seq in seqs if runtime._live.link(seq).index == busy][:count]
    runtime.free(seq for seq in seqs if seq not in beside)
    assert runtime.begin_step([StepInput(greedy)]).wait().mid[greedy].verb == Verb.LATE
    return busy, beside


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "in each step"])
def test_requests_leave_a_worker_that_is_too_busy(runtime: Runtime, idle: bool) -> None:
    busy, seqs = crowd(runtime, 3)
    pulse = seqs.pop() if idle else 0  # one that is stepped, for a client that does nothing hears nothing
    assert places(runtime, seqs) == {busy: len(seqs)}
    deadline = time.monotonic() + 60
    while places(runtime, seqs)[1 - busy] == 0:
        assert time.monotonic() < deadline, runtime.health()
        step = runtime.begin_step([StepInput(seq) for seq in ([pulse] if idle else seqs)])
        assert Verb.SAMPLE in {mid.verb for mid in step.wait().mid.values()}
        time.sleep(0.005)
    result = runtime.begin_step([StepInput(seq) for seq in seqs]).wait()
    assert all(result.mid[seq].verb in (Verb.SAMPLE, Verb.LATE) for seq in seqs)
    deadline = time.monotonic() + 60
    while any("error" in worker for worker in runtime.health()["workers"]):
        assert time.monotonic() < deadline, "a worker has had no core to answer"
    counters = [worker["counters"].get("moved", 0) for worker in runtime.health()["workers"]]
    assert counters[busy] >= 1 and counters[1 - busy] == 0


def test_nothing_moves_where_nobody_is_too_busy(runtime: Runtime) -> None:
    seqs = [runtime.instantiate("guest", "ok") for _ in range(6)]
    before = {seq: runtime._live.link(seq) for seq in seqs}
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        runtime.begin_step([StepInput(seq) for seq in seqs[:3]]).wait()
        time.sleep(0.002)
    assert {seq: runtime._live.link(seq) for seq in seqs} == before


def test_a_request_alone_stays_with_its_load(runtime: Runtime) -> None:
    """It would take it along, again and again."""
    greedy = runtime.instantiate("greedy", "0 3000")  # some milliseconds in each step
    where = runtime._live.link(greedy)
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        runtime.begin_step([StepInput(greedy)]).wait()
    assert runtime._live.link(greedy) is where


def test_looking_costs_a_step_next_to_nothing(runtime: Runtime) -> None:
    seq = runtime.instantiate("guest", "ok")
    runtime.begin_step([StepInput(seq)]).wait()
    moves = runtime._moves
    rounds = 20_000
    started = time.process_time()
    for _ in range(rounds):
        moves.look([seq])
    assert (time.process_time() - started) / rounds < 5e-6
    assert moves._advice, "the supervisor has been asked, and does not answer while there is no need"
