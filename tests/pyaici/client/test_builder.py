"""The builder: it runs `aici_init` once for all workers, in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ArgumentError, TimeLimitError, WorkerDiedError
from aicirt.contract.messages import StepInput
from lab.attacks.modules import LOOPS, slow_module
from lab.system.waiting import wait_until
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, poll, post_prepare, real


@pytest.fixture
def runtime(world: World | None, guest_wasm: Path) -> Iterator[Runtime]:
    with Runtime(
        workers=2, limits={"max_templates": 3, "init_ms": 60_000, "step_grace_ms": 20_000}
    ) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield runtime


def built(runtime: Runtime) -> int:
    return int(runtime.health()["builder"]["built"])


def test_a_template_is_built_once_for_all_workers(
    runtime: Runtime, new_player: Callable[[Runtime], Player]
) -> None:
    player = new_player(runtime)
    seqs = [player.start("ok") for _ in range(6)]
    assert [worker["sequences"] for worker in runtime.health()["workers"]] == [3, 3]
    assert built(runtime) == 1
    result = player.step(*seqs)
    assert all(result.mid[seq].verb == Verb.SAMPLE for seq in seqs)


@real
def test_the_engine_has_priority_over_workers_and_workers_over_the_builder(runtime: Runtime) -> None:
    health = runtime.health()
    own, daemon = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, health["pid"]))
    builder = os.getpriority(os.PRIO_PROCESS, health["builder"]["pid"])
    assert len(health["workers"]) == 2
    for worker in health["workers"]:
        assert own == daemon < os.getpriority(os.PRIO_PROCESS, worker["pid"]) < builder


def test_the_number_of_kept_templates_is_limited(
    runtime: Runtime, new_player: Callable[[Runtime], Player]
) -> None:
    player = new_player(runtime)
    for number in range(8):
        player.mid(player.start(f"ok {number}"))
        player.close()
    assert built(runtime) == 8
    descriptors = len(list(Path(f"/proc/{runtime.health()['pid']}/fd").iterdir()))
    for number in range(40):
        player.mid(player.start(f"ok {number}"))
        player.close()
    assert built(runtime) == 8 + 40
    now = len(list(Path(f"/proc/{runtime.health()['pid']}/fd").iterdir()))
    assert now <= descriptors + 2, "descriptors of evicted templates are left open"
    player.start("ok 39")
    assert built(runtime) == 8 + 40, "the last template must be kept"


def test_a_refused_argument_is_not_cached(runtime: Runtime) -> None:
    for _ in range(2):
        with pytest.raises(ArgumentError, match="no such luck"):
            runtime.prepare("guest", "init_fail")
    assert built(runtime) == 2


@real
def test_only_waiting_clients_fail_when_the_builder_dies(
    runtime: Runtime, new_player: Callable[[Runtime], Player]
) -> None:
    player = new_player(runtime)
    seq = player.start("ok")
    player.mid(seq)
    victim = runtime.health()["builder"]["pid"]
    timer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    with pytest.raises(WorkerDiedError):
        runtime.prepare("guest", "init_loop")
    timer.join()
    assert player.mid(seq, 5).verb == Verb.SAMPLE
    assert player.mid(player.start("ok")).verb == Verb.SAMPLE, "templates built before must be kept"
    assert player.mid(player.start("ok again")).verb == Verb.SAMPLE
    health = runtime.health()
    assert health["restarts"] == 1 and health["builder"]["pid"] != victim


def test_sequences_go_on_while_the_builder_runs(world: World, guest_wasm: Path) -> None:
    with Runtime(workers=1, limits={"init_ms": 500}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(guest_wasm).id
        seq = runtime.instantiate(module, "ok")
        call, steps = post_prepare(runtime, module, "init_loop"), 0
        while (answer := runtime._control.poll(call)) is None:
            assert runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE
            steps += 1
        assert "aici_init used" in str(answer)
        assert steps > 200, "a worker that ran aici_init itself would take far fewer steps"


#: argument: the function, called by the builder, that never returns with it
_LOOPS = {where: name for where, name in LOOPS.items() if name != "aici_init_prompt"}


@pytest.mark.parametrize("count", [4, 40])
def test_builder_answers_and_serves_others_while_guest_code_loops(world: World, count: int) -> None:
    """Regression: without time slices the builder was killed as silent, and others waited for every loop."""
    with Runtime(workers=1, limits={"init_ms": 1200 / count, "silence_seconds": 1}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(slow_module()).id
        calls = [
            post_prepare(runtime, module, f"{where} {number}", "greedy")
            for number in range(count // 4)
            for where in _LOOPS
        ]
        runtime.prepare(module, "ok", owner="victim")
        refused = runtime.health()["builder"]["counters"].get("time_limit", 0)
        assert refused < count // 2, "the victim's build must take turns with those of the greedy owner"
        errors = [poll(runtime, number) for number in calls]
        assert sorted(error.detail["callback"] for error in errors if isinstance(error, TimeLimitError)) == (
            sorted(list(_LOOPS.values()) * (count // 4))
        )
        assert not runtime.health()["restarts"]


def test_builds_end_when_their_client_disconnects(world: World) -> None:
    with Runtime(workers=1, limits={"init_ms": 100_000}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(slow_module()).id
        for _ in range(3):
            with Runtime(runtime._control._path) as other:
                other.register(VOCABULARY)
                for number in range(5):
                    post_prepare(other, module, f"n {number}")
                wait_for_builds(runtime, running=2, waiting=3)
            wait_for_builds(runtime, running=0, waiting=0)
        runtime.prepare(module, "ok")
        assert not runtime.health()["restarts"]


def wait_for_builds(runtime: Runtime, **numbers: int) -> None:
    wait_until(lambda: runtime.health()["builds"] == numbers)
