"""Engines that misuse the client get a typed error. Other sequences lose nothing and stay correct."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ArgumentError, ProtocolError, VocabularyError
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, also_real, guest_runtime


@also_real
def test_an_invalid_token_ends_only_its_own_sequence(player: Player) -> None:
    good, bad = player.start("ok"), player.start("ok")
    player.answers(good, bad)
    answers = player.answers(StepInput(good, tokens=[1]), StepInput(bad, tokens=[-1]))
    assert answers[good].verb == Verb.SAMPLE
    assert answers[bad].verb == Verb.ERROR and isinstance(answers[bad].error, ProtocolError)
    assert player.mid(good, 1).verb == Verb.SAMPLE


def test_a_step_that_cannot_be_encoded_is_refused_and_uses_no_rows(player: Player) -> None:
    seq = player.start("ok")
    for _ in range(300):  # there are 256 rows
        player.mid(seq, 1)
        with pytest.raises(ProtocolError, match="StepInput"):
            player.runtime.begin_step([StepInput(seq, tokens=[object()])])  # type: ignore[list-item]
    assert player.mid(seq, 1).verb == Verb.SAMPLE


@pytest.mark.parametrize("prompt", [(-1,), (300,), ("x",), (1 << 40,)])
def test_a_prompt_with_invalid_tokens_is_refused(player: Player, prompt: tuple[int, ...]) -> None:
    with pytest.raises(VocabularyError, match="prompt"):
        player.start("ok", prompt)


def test_an_argument_that_is_not_utf_8_is_refused(player: Player) -> None:
    with pytest.raises(ArgumentError, match="UTF-8"):
        player.start("ok \ud800")


def test_a_sequence_can_be_freed_while_its_step_runs(player: Player) -> None:
    runtime = player.runtime
    other = player.start("ok")
    for mode in ("ok", "same", "fork 3") * 100:
        seq = player.start(mode)
        player.mid(seq)
        step = runtime.begin_step([StepInput(seq, tokens=[1]), StepInput(other)])
        runtime.free([seq])
        assert not step.wait_pre()
        assert set(step.wait().mid) == {other}
    assert player.mid(other).verb == Verb.SAMPLE
    player.close()
    # children of a freed sequence are freed, too
    wait_until(lambda: not sum(worker["sequences"] for worker in runtime.health()["workers"]))


def test_unfetched_results_do_not_overwrite_a_row_in_use(player: Player) -> None:
    seq, same = player.start("ok"), player.start("same")
    row = player.mid(seq).row
    player.mid(same)
    assert row is not None and row.bits is not None
    before = row.bits.copy()
    for _ in range(200):
        player.runtime.begin_step([StepInput(seq, tokens=[1])]).wait_pre()
    assert (row.bits == before).all()
    assert player.mid(seq).verb == Verb.SAMPLE
    assert player.mid(same, 1).verb == Verb.SAMPLE


def test_an_evicted_snapshot_is_built_again(world: World, guest_wasm: Path) -> None:
    with guest_runtime(guest_wasm, max_templates=3) as runtime:
        player = Player(runtime)
        for round_ in range(2):
            for number in range(8):
                seq = player.start(f"ok {number}")
                assert player.mid(seq).verb == Verb.SAMPLE, (round_, number)


def test_a_silent_worker_is_replaced(guest_wasm: Path) -> None:
    with Runtime(workers=1, limits={"silence_seconds": 1}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        (worker,) = runtime.health()["workers"]
        os.kill(worker["pid"], signal.SIGSTOP)
        wait_until(lambda: runtime.health()["restarts"], 0.1)
        assert runtime.health()["workers"][0]["pid"] != worker["pid"]
        player = Player(runtime)
        assert player.mid(player.start("ok")).verb == Verb.SAMPLE


def test_a_client_can_change_its_vocabulary_and_change_it_back(world: World, guest_wasm: Path) -> None:
    with Runtime(workers=1) as runtime:
        for width in (300, 400, 300, 500):
            runtime.register(VOCABULARY.cut(width))
            runtime.tag(runtime.upload(guest_wasm).id, "guest")
            player = Player(runtime)
            row = player.mid(player.start("ok")).row
            assert row is not None and row.bits is not None and row.bits.shape == ((width + 31) // 32,)
            player.close()


def test_clones_do_not_raise_the_fork_limit(player: Player) -> None:
    seq = player.start("fork 30")
    player.mid(seq)
    clones = [player.runtime.clone(seq) for _ in range(40)]
    player.runtime.free(clones)
    result = player.mid(seq, 1)
    assert result.verb == Verb.ERROR and result.error is not None and result.error.code == "fork_limit"


def test_ending_a_sequence_does_not_delay_an_earlier_step_with_it(player: Player) -> None:
    slow = player.start("mid_loop")
    player.mid(slow)
    first = player.runtime.begin_step([StepInput(slow, tokens=[1])])
    first.wait_pre()
    started = time.monotonic()
    second = player.runtime.begin_step([StepInput(slow, final=True)])
    second.wait()
    first.wait()
    assert time.monotonic() - started < 5
