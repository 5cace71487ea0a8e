"""Starts that a client does not wait for: a worker that hangs delays nobody, and errors are results."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import (
    ControllerFailed,
    RuntimeFailure,
    RuntimeTimeoutError,
    TemplateGoneError,
    WorkerDiedError,
)
from aicirt.contract.messages import StepInput
from lab.system.processes import stopped
from lab.system.waiting import PATIENCE
from pyaici.client import channel
from pyaici.client.arguments import ALL
from pyaici.client.control import Placement
from pyaici.client.runtime import Runtime

from .conftest import Player, also_real, guest_runtime, real


def post(runtime: Runtime, where: Placement, size: int = 3, within: float = 0.0) -> int:
    """Starts a sequence with a prompt of this size, and does not wait until it has started."""
    return runtime.instantiate("guest", "", [1] * size, seed=7, wait=False, within=within, placement=where)


@real
def test_a_stopped_worker_does_not_delay_starts(
    world: None, guest_wasm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a full ring: all prompts together are three times as long as it is."""
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.1)
    with guest_runtime(guest_wasm, silence_seconds=600) as runtime:
        where, player = runtime.place("guest", "ok"), Player(runtime)
        with stopped(runtime) as worker:
            seqs = [post(runtime, where, 50_000, within=PATIENCE * index) for index in range(8)]
            step = runtime.begin_step([StepInput(seq) for seq in seqs])
            verdicts = step.wait_pre(patient=False)  # the guest has a pre_process
            assert {verdicts[seq].verb for seq in seqs} == {Verb.SUSPEND} and not step.wait(patient=False).mid
            runtime.free(seqs[:1])
            assert Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        answers = player.answers(*seqs[1:])  # of prompts that take a while
        assert {answers[seq].verb for seq in seqs[1:]} == {Verb.SAMPLE}


@also_real
@pytest.mark.parametrize("copies", [0, 2])
def test_an_error_of_a_start_is_the_first_result(player: Player, copies: int) -> None:
    runtime = player.runtime
    good, where = player.start("ok"), runtime.place("guest", "ok")
    bad = post(runtime, replace(where, template=where.template + 1000))
    copied = [runtime.begin_clone(bad) for _ in range(copies)]
    for child in copied:
        with pytest.raises(TemplateGoneError):
            runtime.cloned(child, None)
    result = player.answers(good, bad)
    assert isinstance(result[bad].error, TemplateGoneError) and result[good].verb == Verb.SAMPLE
    assert not runtime.is_live(bad)


@also_real
def test_an_error_that_comes_in_time_is_raised(player: Player) -> None:
    where = player.runtime.place("guest", "ok")
    with pytest.raises(TemplateGoneError):
        post(player.runtime, replace(where, template=where.template + 1000), within=PATIENCE)
    refused = player.runtime.place("guest", "prompt_refuse")
    seq = post(player.runtime, refused)
    assert isinstance(player.mid(seq).error, ControllerFailed)


@real
def test_the_death_of_a_worker_is_the_first_result(world: None, guest_wasm: Path) -> None:
    with guest_runtime(guest_wasm) as runtime:
        where = runtime.place("guest", "ok")
        with stopped(runtime) as worker:
            seq = post(runtime, where)
            os.kill(worker, signal.SIGKILL)
        assert isinstance(Player(runtime).mid(seq).error, WorkerDiedError)


@real
def test_a_worker_that_never_reads_is_given_up(
    world: None, guest_wasm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MAX_UNSENT", 1 << 20)
    with guest_runtime(guest_wasm, silence_seconds=600) as runtime:
        where = runtime.place("guest", "ok")
        with stopped(runtime), pytest.raises(RuntimeTimeoutError, match="does not read its messages"):
            for _ in range(100):
                post(runtime, where, 20_000)


@real
@pytest.mark.parametrize("final", [False, True])
def test_an_answer_waits_for_a_step_of_its_sequences(
    world: None, guest_wasm: Path, final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of others would lose it: of a new sequence, or of one that the engine has ended meanwhile."""
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.1)
    with guest_runtime(guest_wasm, silence_seconds=600) as runtime:
        where, other = (runtime.place("guest", arg) for arg in ("mid_return_stop", "ok"))
        player = Player(runtime)
        with stopped(runtime):
            seq, ended = post(runtime, where), post(runtime, other)
            late = runtime.begin_step([StepInput(seq), StepInput(ended)])
            assert late.wait_pre(patient=False)[seq].verb == Verb.SUSPEND
            late.wait(patient=False)
        new = ended if final else post(runtime, other)
        for _ in range(20):
            step = runtime.begin_step([StepInput(new, [1] if final else (), final=final)])
            step.wait_pre(patient=False)
            step.wait(patient=False)
            if final:
                break
        assert [player.mid(seq).verb, player.mid(seq, 1).verb] == [Verb.SAMPLE, Verb.STOP]


@contextmanager
def hurried(guest_wasm: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    """Yields a player whose steps wait for a stopped worker only briefly."""
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.1)
    with guest_runtime(guest_wasm, silence_seconds=600) as runtime:
        yield Player(runtime)


def late_step(player: Player, *seqs: int) -> None:
    """Runs a step of sequences whose worker is stopped."""
    step = player.runtime.begin_step([StepInput(seq) for seq in seqs])
    step.wait_pre(patient=False)
    step.wait(patient=False)


@real
@pytest.mark.parametrize("arg", ["mid_return_stop", "fork 3"])
def test_an_answer_is_kept_for_each_sequence_until_a_step_lists_it(
    world: None, guest_wasm: Path, arg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late step brings the answers of all its sequences, whichever of them the next step lists."""
    with hurried(guest_wasm, monkeypatch) as player:
        seqs = [player.start(arg) for _ in range(3)]
        if arg == "fork 3":
            player.answers(*seqs)  # it forks in the second step
        with stopped(player.runtime):
            late_step(player, *seqs)
        for seq in seqs:
            answers = player.answers(seq)
            while (got := answers[seq]).verb == Verb.SUSPEND:  # the worker has not answered yet
                answers = player.answers(seq)
            assert got.verb == Verb.SAMPLE and got.row is not None
            assert len(answers) == (3 if arg == "fork 3" else 1)
        if arg != "fork 3":
            assert {player.mid(seq, 1).verb for seq in seqs} == {Verb.STOP}
        link = player.runtime._links.all[0]
        assert not link.unread and not link.outstanding and not link.held


@real
def test_unread_answers_of_freed_sequences_are_dropped(
    world: None, guest_wasm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the children that they announce, and with their rows."""
    with hurried(guest_wasm, monkeypatch) as player:
        runtime = player.runtime
        seqs = [player.start(arg) for arg in ("ok", "fork 3", "ok")]
        player.answers(*seqs)
        with stopped(runtime):
            late_step(player, *seqs)
        (link,) = runtime._links.all
        while seqs[1] not in link.unread:
            player.step(seqs[0])
        with pytest.raises(RuntimeFailure, match="late"):
            runtime.begin_clone(seqs[2])
        runtime.free(seqs[1:])
        assert not link.unread
        assert player.answers(seqs[0])[seqs[0]].verb == Verb.SAMPLE
        assert [worker["sequences"] for worker in runtime.health()["workers"]] == [1]


@real
def test_a_worker_that_hangs_does_not_delay_attaching_to_others(world: None, guest_wasm: Path) -> None:
    with guest_runtime(guest_wasm, workers=2, silence_seconds=600) as runtime, ThreadPoolExecutor(2) as pool:
        found: dict[int, Placement] = {}
        while len(found) < 2:  # the supervisor chooses, and nothing is attached yet
            where = Placement.from_wire(
                runtime._call("instantiate", "guest", **runtime._template("ok", ALL, None))
            )
            found[where.address.pid] = where
        attach = [
            partial(runtime._links.attach, where.address, *runtime._require_vocabulary())
            for where in found.values()
        ]
        os.kill(min(found), signal.SIGSTOP)
        try:
            hung, other = (pool.submit(attach[list(found).index(pid)]) for pid in sorted(found))
            assert other.result(PATIENCE).pid == max(found) and not hung.done()
        finally:
            os.kill(min(found), signal.SIGCONT)
        assert hung.result(PATIENCE).pid == min(found)
        assert Player(runtime).mid(runtime.instantiate("guest", "ok")).verb == Verb.SAMPLE
