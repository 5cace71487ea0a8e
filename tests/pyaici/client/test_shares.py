"""Limits on the CPU time that an owner may use in a step for which other owners wait."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import TimeLimitError
from aicirt.contract.messages import StepInput
from lab.attacks.modules import straight_module
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, real, thoroughly_real

Join = Callable[..., Runtime]
#: the CPU time of a few calls
SMALL = {"owner_critical_ms": 0.02}


@pytest.fixture
def join(world: World | None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Join]:
    limits = getattr(request, "param", {})
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(workers=1, limits=limits, store=tmp_path / "store"))

        def join(owner: str) -> Runtime:
            runtime = stack.enter_context(Runtime(daemon.socket_path, owner=owner))
            runtime.register(VOCABULARY)
            return runtime

        yield join


def _steps(runtime: Runtime, seqs: list[int], count: int) -> dict[int, Counter[Verb]]:
    """Counts the verbs with which each sequence answers in `count` steps. Ended sequences are left out."""
    verbs: dict[int, Counter[Verb]] = {seq: Counter() for seq in seqs}
    reports = {seq: StepInput(seq) for seq in seqs}
    for _ in range(count):
        step = runtime.begin_step(list(reports.values()))
        ended = {seq: verdict.verb for seq, verdict in step.wait_pre().items()}
        ended |= {seq: answer.verb for seq, answer in step.wait().mid.items()}
        for seq, verb in ended.items():
            verbs[seq][verb] += 1
            sampled = verb == Verb.SAMPLE
            reports[seq] = StepInput(seq, [65], sampled=True) if sampled else StepInput(seq)
            if verb in (Verb.ERROR, Verb.STOP):
                del reports[seq]
    return verbs


@pytest.mark.parametrize("join", [SMALL], indirect=True)
def test_owner_above_its_share_is_late_and_its_sequences_take_turns(join: Join, guest_wasm: Path) -> None:
    runtime = join("engine")
    module = runtime.upload(guest_wasm).id
    greedy = [runtime.instantiate(module, "ok", owner="greedy") for _ in range(4)]
    modest = [runtime.instantiate(module, "ok", owner="modest")]
    verbs = _steps(runtime, [*greedy, *modest], 1500)
    assert all(set(verbs[seq]) <= {Verb.SAMPLE, Verb.LATE} for seq in verbs)
    tokens = [verbs[seq][Verb.SAMPLE] for seq in greedy]
    assert 0 < sum(tokens) < 4 * 1500
    assert min(tokens) > 0.2 * max(tokens), "one of them starves"


@pytest.mark.parametrize("join", [SMALL], indirect=True)
def test_owner_alone_in_a_worker_is_not_limited(join: Join, guest_wasm: Path) -> None:
    runtime = join("only")
    module = runtime.upload(guest_wasm).id
    seqs = [runtime.instantiate(module, "ok") for _ in range(4)]
    verbs = _steps(runtime, seqs, 20)
    assert all(verbs[seq] == {Verb.SAMPLE: 20} for seq in seqs)


@pytest.mark.parametrize("join", [SMALL], indirect=True)
def test_owner_is_alone_as_soon_as_all_sequences_of_others_have_ended(
    world: World, join: Join, guest_wasm: Path
) -> None:
    runtime = join("engine")
    module = runtime.upload(guest_wasm).id
    other = runtime.instantiate(module, "ok", owner="other")
    seqs = [runtime.instantiate(module, "ok", owner="only") for _ in range(4)]
    assert _steps(runtime, [*seqs, other], 20)[seqs[-1]][Verb.LATE]
    gc.disable()  # what is left of the other owner must not matter
    try:
        runtime.free([other])
        verbs = _steps(runtime, seqs, 20)
    finally:
        gc.enable()
    assert all(set(verbs[seq]) == {Verb.SAMPLE} for seq in seqs), verbs
    assert not any(local.worker.owners.in_debt for local in world.workers), "debts fall meanwhile"


@pytest.mark.parametrize("join", [SMALL], indirect=True)
def test_late_sequences_receive_every_token_once(join: Join, guest_wasm: Path) -> None:
    runtime = join("engine")
    module = runtime.upload(guest_wasm).id
    other = runtime.instantiate(module, "ok", owner="modest")
    seqs = [runtime.instantiate(module, "report", owner="greedy") for _ in range(3)]
    sent: dict[int, list[int]] = {seq: [] for seq in seqs}
    logs, late = dict.fromkeys(seqs, ""), 0
    reports = {seq: StepInput(seq) for seq in (other, *seqs)}
    for number in range(2000):
        result = runtime.begin_step(list(reports.values())).wait()
        for seq, text in result.logs.items():
            logs[seq] += text
        for seq, answer in result.mid.items():
            reports[seq] = StepInput(seq)
            late += answer.verb == Verb.LATE
            if answer.verb == Verb.SAMPLE:
                reports[seq] = StepInput(seq, [1 + number % 200], sampled=True)
                if seq in sent:
                    sent[seq].append(1 + number % 200)
        if min(map(len, sent.values())) > 5:
            break
    assert late > 10
    for seq in seqs:
        received = [int(line.split()[4]) for line in logs[seq].splitlines() if line.startswith("post:")]
        assert received and received == sent[seq][: len(received)] and len(sent[seq]) - len(received) <= 1


@real
def test_straight_code_ends_its_own_sequence_only(join: Join, guest_wasm: Path) -> None:
    """Regression: 160 such sequences took 16 s of a step, and the supervisor killed the worker as silent."""
    runtime = join("engine")
    straight, good = runtime.upload(straight_module()).id, runtime.upload(guest_wasm).id
    victim = runtime.instantiate(good, "ok", owner="modest")
    (before,) = [worker["pid"] for worker in runtime.health()["workers"]]
    attack = [runtime.instantiate(straight, "", owner="greedy") for _ in range(20)]
    verbs = _steps(runtime, [*attack, victim], 60)
    # any sequence may be late
    assert set(verbs[victim]) <= {Verb.SAMPLE, Verb.LATE} and verbs[victim][Verb.SAMPLE] > 0
    assert sum(verbs[seq][Verb.ERROR] for seq in attack) > 0
    assert [worker["pid"] for worker in runtime.health()["workers"]] == [before]


@thoroughly_real
def test_the_error_explains_how_the_time_allowance_grows(join: Join, guest_wasm: Path) -> None:
    runtime = join("only")
    seq = runtime.instantiate(runtime.upload(guest_wasm).id, "pre_loop")
    runtime.begin_step([StepInput(seq)]).wait()
    step = runtime.begin_step([StepInput(seq)])
    pre = step.wait_pre()
    error = (pre if seq in pre else step.wait().mid)[seq].error
    assert isinstance(error, TimeLimitError)
    assert "each step adds" in error.message and "critical_saved_ms" in error.message
