"""Steps that are abandoned, waited for too late, or that conflict with another call."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ClosedError, RuntimeFailure
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, guest_runtime, thoroughly_real


@pytest.fixture
def own(world: World | None, guest_wasm: Path) -> Iterator[Player]:
    """A runtime that the test may close."""
    with guest_runtime(guest_wasm) as runtime:
        yield Player(runtime)


def wait_for_sequences(runtime: Runtime, count: int) -> None:
    wait_until(lambda: sum(worker["sequences"] for worker in runtime.health()["workers"]) == count)


@pytest.mark.parametrize("mode", ["ok", "all", "sparse 9", "dense", "same"])
def test_abandoned_steps_cost_no_rows(player: Player, mode: str) -> None:
    seq, other = player.start(mode), player.start("ok")
    player.step(seq, other)
    (link,) = player.runtime._links.all
    kept = len(link._messages)  # results that other tests did not fetch
    for number in range(600):  # there are 256 rows, and 4 dense ones
        step = player.runtime.begin_step([StepInput(seq, tokens=[1]), StepInput(other, tokens=[1])])
        if number % 2:
            step.wait_pre()
        step.abandon()
    assert player.mid(other, 1).verb == Verb.SAMPLE
    assert len(link._messages) == kept and not link._abandoned
    assert player.mid(seq, 1).verb == Verb.SAMPLE


@pytest.mark.parametrize("seed", range(8))
def test_a_row_is_asked_for_again_whether_it_was_read_or_not(player: Player, seed: int) -> None:
    """Steps are read or abandoned; the sequence is cloned, and some of the copies end."""
    rng = random.Random(seed)
    seqs = [player.start("same_twice")]
    in_use: dict[int, tuple[NDArray[np.uint32], int]] = {}
    same = 0
    for _ in range(300):
        chosen = [seq for seq in seqs if rng.random() < 0.7]
        step = player.runtime.begin_step([StepInput(seq, tokens=[1]) for seq in chosen])
        read = rng.random() < 0.5
        if not read:
            step.abandon()
        else:
            result = step.wait()
            for seq, log in result.logs.items():
                number = int(log.split()[-1])
                if (row := result.mid[seq].row) is not None and number > 3:
                    assert row.bits is not None
                    same += seq in in_use and in_use[seq][0] is row.bits
                    in_use[seq] = row.bits, number - number % 3
        for bits, token in in_use.values():
            assert np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist() == [token]
        if read and len(seqs) < 6 and rng.random() < 0.2:
            with contextlib.suppress(RuntimeFailure):  # an abandoned step is still under way
                seqs.append(player.runtime.clone(rng.choice(seqs)))
                player.seqs.append(seqs[-1])
        if len(seqs) > 2 and rng.random() < 0.1:
            gone = seqs.pop(rng.randrange(len(seqs)))
            player.runtime.free([gone])
            in_use.pop(gone, None)
    assert same > 20 and len(in_use) > 1


def test_abandoning_a_step_does_not_wait(player: Player) -> None:
    slow = player.start("mid_loop")
    player.step(slow)
    started = time.monotonic()
    player.runtime.begin_step([StepInput(slow, tokens=[1])]).abandon()
    assert time.monotonic() - started < 0.05


@pytest.mark.parametrize("elsewhere", ["plain sequence", "other worker"])
def test_a_step_does_not_wait_for_the_slow_controller_of_another_sequence(
    world: World, guest_wasm: Path, elsewhere: str
) -> None:
    """The deadline applies only if no sequence can go on; here it would come after `STEP_TIMEOUT`."""
    with guest_runtime(guest_wasm, 2, mid_ms=60_000, step_deadline_ms=60_000) as runtime:
        slow = runtime.instantiate("guest", "mid_loop")
        runtime.begin_step([StepInput(slow)]).wait()  # its loop begins in the second step
        others = [runtime.instantiate("guest", "ok") for _ in range(4)]
        fast = next(seq for seq in others if runtime._live.link(seq) is not runtime._live.link(slow))
        plain = elsewhere == "plain sequence"
        inputs = [StepInput(slow)] if plain else [StepInput(slow), StepInput(fast)]
        result = runtime.begin_step(inputs).wait(ready=plain)
        assert result.mid[slow].verb == Verb.LATE
        if not plain:
            assert result.mid[fast].verb == Verb.SAMPLE


@thoroughly_real
@pytest.mark.parametrize("fetched", [False, True])
def test_unfetched_forks_of_an_abandoned_step_are_undone(own: Player, fetched: bool) -> None:
    """The engine keeps the forks whose numbers it has fetched."""
    runtime, seq = own.runtime, own.start("fork 4")
    own.step(seq)
    step = runtime.begin_step([StepInput(seq, tokens=[1])])
    children = step.wait_pre()[seq].children if fetched else []
    step.abandon()
    assert own.mid(seq).verb == Verb.SAMPLE
    wait_for_sequences(runtime, 4 if fetched else 1)
    answers = own.answers(seq, *children)
    assert [answers[s].verb for s in (seq, *children)] == [Verb.SAMPLE] * (1 + len(children))


def test_an_abandoned_step_has_no_results(player: Player) -> None:
    seq = player.start("ok")
    step = player.runtime.begin_step([StepInput(seq)])
    step.abandon()
    step.abandon()
    for wait in (step.wait_pre, step.wait):
        with pytest.raises(RuntimeFailure, match="the step was abandoned"):
            wait()
    step = player.runtime.begin_step([StepInput(seq)])
    assert step.wait().mid[seq].verb == Verb.SAMPLE
    step.abandon()
    with pytest.raises(RuntimeFailure, match="been fetched"):
        step.wait()


@pytest.mark.parametrize("mode", ["ok", "mid_loop"])
def test_waiting_after_close_is_a_typed_error(own: Player, mode: str) -> None:
    seq = own.start(mode)
    own.step(seq)
    steps = [own.runtime.begin_step([StepInput(seq, tokens=[1])]) for _ in range(2)]
    steps[1].wait_pre()
    own.runtime.close()
    for wait in (steps[0].wait_pre, steps[0].wait, steps[1].wait):
        with pytest.raises(ClosedError, match="the runtime has been closed"):
            wait()
    for step in steps:
        step.abandon()


def test_waiting_after_another_vocabulary_was_registered_is_an_error(own: Player) -> None:
    seq = own.start("ok")
    step = own.runtime.begin_step([StepInput(seq)])
    own.runtime.free([seq])
    own.runtime.register(VOCABULARY.cut(400))
    with pytest.raises(RuntimeFailure, match="another vocabulary"):
        step.wait()


def test_a_sequence_in_a_step_cannot_be_cloned(player: Player) -> None:
    runtime, seq, other = player.runtime, player.start("fork 2"), player.start("ok")
    player.step(seq, other)
    first = runtime.begin_step([StepInput(seq, tokens=[1])])
    second = runtime.begin_step([StepInput(other, tokens=[1])])
    (child,) = first.wait_pre()[seq].children
    player.seqs.append(child)
    for number in (seq, child, other):
        with pytest.raises(RuntimeFailure, match=f"sequence {number} is in a step under way"):
            runtime.clone(number)
    first.wait()
    clones = [runtime.clone(seq), runtime.clone(child)]
    with pytest.raises(RuntimeFailure, match="under way"):
        runtime.clone(other)
    second.wait()
    clones.append(runtime.clone(other))
    player.seqs += clones
    assert all(mid.verb == Verb.SAMPLE for mid in player.answers(*clones).values())


def test_a_sequence_of_an_abandoned_step_can_be_cloned(player: Player) -> None:
    seq = player.start("ok")
    player.step(seq)
    player.runtime.begin_step([StepInput(seq, tokens=[1])]).abandon()
    clone = player.runtime.clone(seq)
    player.seqs.append(clone)
    assert player.mid(clone, 1).verb == Verb.SAMPLE
