"""Moves that meet deaths, steps and other wishes at every stage: nothing is lost silently, or done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, SupervisorDiedError, WorkerDiedError
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.link import WorkerAddress
from pyaici.client.moves import Move
from pyaici.client.runtime import Runtime

from .conftest import GUESTS, VOCABULARY, Player
from .twins import LEISURE, content

PATIENCE = 20.0


@pytest.fixture(scope="module")
def mover_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "mover.c", tmp_path_factory.mktemp("mover") / "mover.wasm").path


@dataclass
class Scene:
    """A request that is about to move, another that is told the same, and the processes that take part."""

    runtime: Runtime
    player: Player
    seq: int
    twin: int
    source: int
    target: int
    supervisor: int
    move: Move | None = None

    def begin(self) -> None:
        """The supervisor is asked; nobody waits for the answer."""
        runtime = self.runtime
        family, link = runtime._live.families[self.seq], runtime._live.link(self.seq)
        wire = runtime._control.call("destination", source=[link.index, link.generation])
        assert wire["pid"] == self.target
        self.move = runtime._moves._begin(family, link, WorkerAddress.from_wire(wire))

    def same(self, command: str) -> None:
        """Both answer the same."""
        seqs = self.seq, self.twin
        mid = self.player.step(*(StepInput(seq, [ord(command)], sampled=True) for seq in seqs)).mid
        assert content(mid[self.seq]) == content(mid[self.twin])

    def lost(self) -> None:
        """The next step says so, and its twin goes on."""
        mid = self.player.step(*(StepInput(seq, [ord("V")]) for seq in (self.seq, self.twin))).mid
        assert isinstance(mid[self.seq].error, WorkerDiedError)

    def sequences(self) -> dict[int, int]:
        health = self.runtime.health()
        return {worker["pid"]: worker.get("sequences", -1) for worker in health["workers"]}

    def arrived(self) -> None:
        """Waits until the target has the request: by then the source is asked to give it up."""
        deadline = time.monotonic() + PATIENCE
        while self.sequences()[self.target] != 2:
            assert time.monotonic() < deadline, self.sequences()

    def settled(self, count: int) -> None:
        """So many sequences are live in all workers together, soon, and stay so."""
        deadline = time.monotonic() + PATIENCE
        while sum(self.sequences().values()) != count:
            assert time.monotonic() < deadline, self.sequences()
            time.sleep(0.02)
        time.sleep(0.05)
        assert sum(self.sequences().values()) == count


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def soon() -> None:
    """What is not stopped has time for its part."""
    time.sleep(0.15)


def under_way(scene: Scene, stopped: str) -> int:
    """Begins a move while one of its workers is stopped, the target for longer; that worker's process."""
    pid: int = getattr(scene, stopped)
    stop(pid)
    scene.begin()
    soon()
    if stopped == "source":
        go_on(pid)
    return pid


@pytest.fixture
def scene(mover_wasm: Path) -> Iterator[Scene]:
    with Runtime(workers=2, limits=LEISURE) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(mover_wasm).id, "mover")
        runtime._moves.automatic = False
        player = Player(runtime)
        seqs = [runtime.instantiate("mover", "5000", [3], seed=4) for _ in range(4)]
        links = [runtime._live.link(seq) for seq in seqs]
        seq = seqs[0]
        twin = next(other for other, link in zip(seqs, links, strict=True) if link is not links[0])
        runtime.free(other for other in seqs if other not in (seq, twin))
        player.step(*(StepInput(other, [ord("V")]) for other in (seq, twin)))
        health = runtime.health()
        source = runtime._live.link(seq).pid
        target = runtime._live.link(twin).pid
        try:
            yield Scene(runtime, player, seq, twin, source, target, health["pid"])
        finally:
            for pid in (source, target, health["pid"]):
                go_on(pid)


# -- the client wants something meanwhile -------------------------------------------------------------


def test_a_step_at_the_same_moment_is_answered_where_the_request_is(scene: Scene) -> None:
    """The new worker does not take part, for which nobody waits."""
    stop(scene.target)
    scene.begin()
    soon()
    started = time.monotonic()
    mid = scene.player.step(StepInput(scene.seq, [ord("x")], sampled=True)).mid
    assert mid[scene.seq].verb == Verb.SAMPLE and time.monotonic() - started < 5
    assert scene.runtime._live.link(scene.seq).pid == scene.source
    go_on(scene.target)
    twin = scene.player.step(StepInput(scene.twin, [ord("x")], sampled=True)).mid
    assert content(mid[scene.seq]) == content(twin[scene.twin])
    scene.same("M")
    scene.settled(2)
    scene.runtime.move(scene.seq)
    scene.same("V")


def test_a_step_needs_no_supervisor(scene: Scene) -> None:
    stop(scene.supervisor)
    link = scene.runtime._live.link(scene.seq)
    family = scene.runtime._live.families[scene.seq]
    other = scene.runtime._live.link(scene.twin)
    call = scene.runtime._control.post(
        "move",
        source=[link.index, link.generation],
        target=[other.index, other.generation],
        seqs=[scene.seq],
    )
    scene.runtime._moves.pending.append(Move(family, link, other, call))
    scene.same("x")
    go_on(scene.supervisor)  # it has been told to move a request that has been stepped since
    time.sleep(0.3)
    scene.settled(2)
    scene.player.step(StepInput(scene.twin, [ord("M")]))
    assert not scene.runtime._moves.pending


def test_a_step_when_it_has_just_moved(scene: Scene) -> None:
    """The supervisor has not said so yet: the old worker does."""
    stop(scene.source)
    scene.begin()
    go_on(scene.source)
    deadline = time.monotonic() + PATIENCE
    assert scene.move is not None
    call, scene.move.call = scene.move.call, scene.runtime._control.post("list")  # as if no answer came
    scene.runtime._control.poll(scene.move.call, PATIENCE)
    while scene.runtime._control.poll(call, 0.01) is None:
        assert time.monotonic() < deadline
    scene.same("x")
    assert scene.runtime._live.link(scene.seq).pid == scene.target
    scene.same("M")
    scene.settled(2)


@pytest.mark.parametrize("stopped", ["source", "target"])
def test_freeing_it_at_the_same_moment(scene: Scene, stopped: str) -> None:
    pid = under_way(scene, stopped)
    scene.runtime.free([scene.seq])
    go_on(pid)
    scene.settled(1)


@pytest.mark.parametrize("stopped", ["source", "target"])
def test_cloning_it_at_the_same_moment(scene: Scene, stopped: str) -> None:
    pid = under_way(scene, stopped)
    child = scene.runtime.clone(scene.seq)
    go_on(pid)
    scene.settled(3)
    mid = scene.player.step(*(StepInput(seq, [ord("x")]) for seq in (scene.seq, child, scene.twin))).mid
    assert content(mid[scene.seq]) == content(mid[child]) == content(mid[scene.twin])
    scene.runtime.move(child)
    scene.settled(3)


# -- somebody dies -----------------------------------------------------------------------------------


def test_the_old_worker_dies_before_it_has_described_the_request(scene: Scene) -> None:
    stop(scene.source)
    scene.begin()
    kill(scene.source)
    scene.lost()
    scene.settled(1)
    scene.player.step(StepInput(scene.twin, [ord("x")]))


def test_the_new_worker_dies_before_it_has_the_request(scene: Scene) -> None:
    """The request is where it was, and has not noticed."""
    stop(scene.target)
    scene.begin()
    soon()
    kill(scene.target)
    mid = scene.player.step(StepInput(scene.seq, [ord("x")], sampled=True)).mid
    assert mid[scene.seq].verb == Verb.SAMPLE
    scene.settled(1)
    deadline = time.monotonic() + PATIENCE
    while scene.target in scene.sequences():
        assert time.monotonic() < deadline
    scene.runtime.move(scene.seq)  # to its successor
    assert scene.player.mid(scene.seq, ord("M")).verb == Verb.SAMPLE


def test_the_old_worker_dies_while_the_new_one_takes_the_request(scene: Scene) -> None:
    """What has arrived is not kept: the client counts it as lost with its worker."""
    stop(scene.target)
    scene.begin()
    soon()
    kill(scene.source)
    go_on(scene.target)
    scene.lost()
    scene.settled(1)


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_worker_dies_when_both_have_the_request(scene: Scene, victim: str) -> None:
    stop(scene.target)
    scene.begin()
    soon()
    stop(scene.source)
    go_on(scene.target)
    scene.arrived()
    assert scene.move is not None
    kill(getattr(scene, victim))
    go_on(scene.source)
    if victim == "source":
        scene.lost()
        scene.settled(1)
        return
    mid = scene.player.step(
        StepInput(scene.seq, [ord("x")], sampled=True)
    ).mid  # it has moved, and died there
    assert isinstance(mid[scene.seq].error, WorkerDiedError)
    scene.settled(0)


def test_the_new_worker_dies_after_the_move(scene: Scene) -> None:
    scene.runtime.move(scene.seq)
    kill(scene.target)
    mid = scene.player.step(*(StepInput(seq, [ord("x")]) for seq in (scene.seq, scene.twin))).mid
    assert all(isinstance(mid[seq].error, WorkerDiedError) for seq in (scene.seq, scene.twin))
    scene.settled(0)


def test_the_old_worker_dies_after_the_move(scene: Scene) -> None:
    """The row that the engine has of it was there, and the engine may still look at it."""
    row = scene.player.mid(scene.seq, ord("x")).row
    assert row is not None and row.bits is not None
    before = row.bits.tobytes()
    scene.runtime.move(scene.seq)
    kill(scene.source)
    deadline = time.monotonic() + PATIENCE
    while scene.source in scene.sequences():
        assert time.monotonic() < deadline
    new = [scene.runtime.instantiate("mover", "5", [3]) for _ in range(4)]  # also in its successor
    assert row.bits.tobytes() == before
    again = scene.player.mid(scene.seq, ord("M")).row
    assert again is not None and again.bits is not None and again.bits.tobytes() == before
    scene.player.step(*new)
    scene.player.mid(scene.seq, ord("x"))


@pytest.mark.parametrize("stopped", ["source", "target"])
def test_the_supervisor_dies(scene: Scene, stopped: str) -> None:
    stop(getattr(scene, stopped))
    scene.begin()
    soon()
    kill(scene.supervisor)
    started = time.monotonic()
    while not scene.runtime._live.link(scene.seq).gone:  # it dies with the supervisor
        assert time.monotonic() - started < 5
    scene.lost()
    assert time.monotonic() - started < 5
    with pytest.raises(SupervisorDiedError):
        scene.runtime.health()


@pytest.mark.parametrize("stopped", ["source", "target"])
def test_the_client_dies(mover_wasm: Path, stopped: str) -> None:
    script = """
        import os, signal, sys, time
        from pyaici.client.link import WorkerAddress
        from pyaici.client.runtime import Runtime
        from tests.pyaici.client.conftest import VOCABULARY
        runtime = Runtime(sys.argv[1])
        runtime.register(VOCABULARY)
        seqs = [runtime.instantiate("mover", "9", [1]) for _ in range(2)]
        links = [runtime._live.link(seq) for seq in seqs]
        wire = runtime._control.call("destination", source=[links[0].index, links[0].generation])
        os.kill(links[sys.argv[2] == "target"].pid, signal.SIGSTOP)
        runtime._moves._begin(runtime._live.families[seqs[0]], links[0], WorkerAddress.from_wire(wire))
        time.sleep(0.2)
        print(links[sys.argv[2] == "target"].pid, flush=True)
        time.sleep(60)
    """
    root = Path(__file__).resolve().parents[3]
    with Runtime(workers=2) as runtime:
        assert runtime._daemon is not None
        runtime.tag(runtime.upload(mover_wasm).id, "mover")
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(runtime._daemon.socket_path), stopped],
            stdout=subprocess.PIPE,
            cwd=root,
        ) as other:
            assert other.stdout is not None
            pid = int(other.stdout.readline())
            other.kill()
            other.wait()
        time.sleep(0.2)
        go_on(pid)
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(AiciError):
                health = runtime.health()
                if len(health["clients"]) == 1 and [w["sequences"] for w in health["workers"]] == [0, 0]:
                    break
            assert time.monotonic() < deadline, health
            time.sleep(0.02)
        assert health["restarts"] == 0
