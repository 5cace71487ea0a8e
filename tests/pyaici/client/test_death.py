"""Killed processes cause a typed error soon. Other sequences go on, and nothing is left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import RuntimeFailure, SupervisorDiedError, UnknownSequenceError, WorkerDiedError
from aicirt.contract.messages import StepInput
from lab.system.processes import starved
from lab.system.waiting import PATIENCE, wait_until
from pyaici.bundled import find_controller
from pyaici.client.runtime import Runtime

from .conftest import VOCABULARY, Player


@contextmanager
def two_workers(guest_wasm: Path) -> Iterator[Runtime]:
    with Runtime(workers=2) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield runtime


@pytest.fixture
def fragile(guest_wasm: Path) -> Iterator[Runtime]:
    """A runtime of a test that kills its processes."""
    with two_workers(guest_wasm) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def shared(guest_wasm: Path) -> Iterator[Runtime]:
    with two_workers(guest_wasm) as runtime:
        yield runtime


@pytest.fixture
def runtime(shared: Runtime) -> Iterator[Runtime]:
    """A runtime that tests share: they kill none of its processes."""
    yield shared
    shared.free(list(shared._live))
    wait_until(lambda: not sum(worker["sequences"] for worker in shared.health()["workers"]))


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_killed_worker_takes_only_its_sequences(fragile: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The death itself is noticed: these limits would be a wait without end."""
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", PATIENCE)
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", PATIENCE)
    player = Player(fragile)
    seqs = [player.start("ok") for _ in range(4)]
    workers = {seq: fragile._live.link(seq).pid for seq in seqs}
    while len({*workers.values()}) < 2:  # the least loaded worker that answers gets a sequence
        seqs.append(player.start("ok"))
        workers[seqs[-1]] = fragile._live.link(seqs[-1]).pid
    player.step(*seqs)
    victim = workers[seqs[0]]
    doomed = {seq for seq, pid in workers.items() if pid == victim}
    step = fragile.begin_step([StepInput(seq, tokens=[1]) for seq in seqs])
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: gone(victim))
    pre, mid = step.wait_pre(), step.wait().mid
    # the killed worker may have answered this step before it died: then the next step reports the error
    pre2 = {}
    mid2 = {}
    live = [s for s in seqs if s in mid and mid[s].verb == Verb.SAMPLE]
    if len(live) == len(seqs):
        step = fragile.begin_step([StepInput(seq, tokens=[1]) for seq in seqs])
        pre2, mid2 = step.wait_pre(), step.wait().mid
    verdicts = {**mid, **pre, **mid2, **pre2}
    errors = {seq: v.error for seq, v in verdicts.items() if v.verb == Verb.ERROR}
    assert errors.keys() == doomed and all(isinstance(error, WorkerDiedError) for error in errors.values())
    survivors = [seq for seq, v in verdicts.items() if v.verb == Verb.SAMPLE]
    assert {*survivors} == {*seqs} - doomed
    for _ in range(3):
        result = player.step(*(StepInput(seq, tokens=[1]) for seq in survivors))
        assert all(m.verb == Verb.SAMPLE for m in result.mid.values())
    lost = min(doomed)
    with pytest.raises(UnknownSequenceError):
        fragile.begin_step([StepInput(lost)])
    # a new process replaces the worker and takes new sequences
    new = [player.start("ok") for _ in range(4)]
    assert all(m.verb == Verb.SAMPLE for m in player.answers(*new).values())
    health = fragile.health()
    assert health["restarts"] == 1 and victim not in [w["pid"] for w in health["workers"]]


def test_a_step_with_a_stopped_worker_times_out(guest_wasm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", 0.5)
    with Runtime(workers=1) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        player = Player(runtime)
        seq = player.start("ok")
        (worker,) = runtime.health()["workers"]
        os.kill(worker["pid"], signal.SIGSTOP)
        result = player.step(seq)
        assert result.mid[seq].verb == Verb.ERROR
        assert result.mid[seq].error is not None and result.mid[seq].error.code == "timeout"
        os.kill(worker["pid"], signal.SIGKILL)


@pytest.mark.parametrize("controller", ["guest", "regex"])
def test_others_do_not_wait_for_a_stopped_worker(
    runtime: Runtime, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Makes only the sequences of the stopped worker late, or suspended if they have pre_process."""
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", PATIENCE)
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.1)
    module, arg = "guest", "ok"
    if controller == "regex":
        module, arg = runtime.upload(find_controller("regex").read_bytes()).id, "a[bc]*|d[ef]*"
    seqs = [runtime.instantiate(module, arg, [1, 2, 3], seed=7) for _ in range(4)]
    player = Player(runtime)
    assert {answer.verb for answer in player.answers(*seqs).values()} == {Verb.SAMPLE}
    stopped = runtime._live.link(seqs[0])
    slow = [seq for seq in seqs if runtime._live.link(seq) is stopped]
    fast = [seq for seq in seqs if seq not in slow]
    assert slow and fast
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        waits = Verb.SUSPEND if controller == "guest" else Verb.LATE
        inputs = {seq: StepInput(seq, [ord("a")], sampled=True) for seq in seqs}
        left = {seq: [*b"cb"] for seq in fast}
        while left:
            answers = player.step(*inputs.values()).mid
            assert {answers[seq].verb for seq in slow} == {waits}
            assert {answers[seq].verb for seq in inputs} <= {Verb.SAMPLE, waits}
            for seq in [*inputs]:
                inputs[seq] = StepInput(seq)  # a busy machine makes the others late, too
                if answers[seq].verb == Verb.SAMPLE and left[seq]:
                    inputs[seq] = StepInput(seq, [left[seq].pop(0)], sampled=True)
                elif answers[seq].verb == Verb.SAMPLE:
                    del inputs[seq], left[seq]
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    while (answer := player.step(*slow).mid[slow[0]]).verb in (Verb.LATE, Verb.SUSPEND):
        pass
    assert answer.verb == Verb.SAMPLE and answer.row is not None
    if controller == "regex":  # the token of the first step has come
        assert [token for token in b"abcdef" if answer.row.permits(token)] == list(b"bc")


def test_a_worker_that_stays_stopped_times_out_beside_others(
    fragile: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyaici.client.step.LATE_SECONDS", 0.02)
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", PATIENCE)
    player = Player(fragile)
    seqs = [player.start("ok") for _ in range(4)]
    player.step(*seqs)
    stopped = fragile._live.link(seqs[0])
    slow = [seq for seq in seqs if fragile._live.link(seq) is stopped]
    fast = [seq for seq in seqs if seq not in slow]
    os.kill(stopped.pid, signal.SIGSTOP)
    for _ in range(3):
        answers = player.step(*fast, *slow).mid
        assert {answers[seq].verb for seq in slow} == {Verb.SUSPEND}
    (late,) = stopped.outstanding.values()
    monkeypatch.setattr(late.patience, "_timeout", 0.1)  # nearly all of the time has passed
    while (answers := player.step(*fast, *slow).mid)[slow[0]].verb == Verb.SUSPEND:
        time.sleep(0.01)
    errors = [answers[seq].error for seq in slow]
    assert all(error is not None and error.code == "timeout" for error in errors)
    while {answers[seq].verb for seq in fast} != {Verb.SAMPLE}:  # the machine is busy
        assert {answers[seq].verb for seq in fast} <= {Verb.SAMPLE, Verb.SUSPEND}
        answers = player.step(*fast).mid
    os.kill(stopped.pid, signal.SIGKILL)


def test_a_worker_without_processor_time_does_not_time_out(
    fragile: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyaici.client.step.STEP_TIMEOUT", 1.0)
    player = Player(fragile)
    seq = player.start("ok")
    link = fragile._live.link(seq)
    with starved(link.pid):
        # the worker sleeps now, and gets too little time to wake up and answer
        for _ in range(3):
            result = player.step(seq)
            assert result.mid[seq].error is None


def test_workers_end_and_calls_fail_when_the_supervisor_is_killed(guest_wasm: Path) -> None:
    runtime = Runtime(workers=1)
    runtime.register(VOCABULARY)
    runtime.tag(runtime.upload(guest_wasm).id, "guest")
    player = Player(runtime)
    seq = player.start("ok")
    health = runtime.health()
    os.kill(health["pid"], signal.SIGKILL)
    wait_until(lambda: gone(health["workers"][0]["pid"]))
    result = player.step(seq)
    assert isinstance(result.mid[seq].error, WorkerDiedError)
    with pytest.raises(SupervisorDiedError):
        player.start("ok")
    runtime.close()


def test_close_leaves_no_processes(guest_wasm: Path) -> None:
    with Runtime(workers=2) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        Player(runtime).start("ok")
        health = runtime.health()
    pids = [health["pid"], *(worker["pid"] for worker in health["workers"])]
    wait_until(lambda: all(map(gone, pids)))
    with pytest.raises(RuntimeFailure):
        runtime.health()


def test_sequences_of_a_dead_client_are_freed(runtime: Runtime, guest_wasm: Path) -> None:
    """Two engines share a daemon, and one is killed in the middle of a step."""
    assert runtime._daemon is not None
    script = """
        import os, sys
        from pyaici.client.runtime import Runtime
        from aicirt.contract.messages import StepInput
        from tests.pyaici.client.conftest import VOCABULARY
        runtime = Runtime(sys.argv[1])
        runtime.register(VOCABULARY)
        seqs = [runtime.instantiate("guest", "ok", (1, 2)) for _ in range(4)]
        runtime.begin_step([StepInput(seq) for seq in seqs])
        print("ready", flush=True)
        import time
        from lab.system.waiting import PATIENCE
        time.sleep(PATIENCE)
    """
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(runtime._daemon.socket_path)],
        stdout=subprocess.PIPE,
        cwd=root,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        player = Player(runtime)
        seq = player.start("ok")
        assert sum(worker["sequences"] for worker in runtime.health()["workers"]) == 5
        other.kill()
        other.wait()
    wait_until(lambda: len(runtime.health()["clients"]) == 1)
    wait_until(lambda: sum(worker["sequences"] for worker in runtime.health()["workers"]) == 1)
    assert player.mid(seq).verb == Verb.SAMPLE


def test_a_private_daemon_ends_when_its_engine_dies(guest_wasm: Path) -> None:
    script = """
        import os
        from pyaici.client.runtime import Runtime
        runtime = Runtime(workers=1)
        health = runtime.health()
        print(health["pid"], health["workers"][0]["pid"], runtime._daemon.socket_path.parent, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, check=False
    )
    *numbers, folder = done.stdout.decode().split()
    pids = [int(text) for text in numbers]
    assert len(pids) == 2
    wait_until(lambda: all(map(gone, pids)))
    assert not Path(folder).exists()


def test_a_socket_without_a_daemon_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="aici runtime"):
        Runtime(tmp_path / "nobody.sock")


def test_a_daemon_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeFailure, match="there is no limit 'nonsense'"):
        Runtime(limits={"nonsense": 3})


def test_a_second_daemon_on_a_socket_fails_and_the_first_goes_on(runtime: Runtime, tmp_path: Path) -> None:
    assert runtime._daemon is not None
    path = runtime._daemon.socket_path
    for socket, words in [(path, "another aicirt"), (tmp_path / "no" / "a.sock", "does not exist")]:
        command = [sys.executable, "-m", "aicirt", "--workers", "1", "--socket", str(socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and words in done.stderr
    with Runtime(path) as second:
        assert second.health()["pid"] == runtime.health()["pid"]


def test_a_supervisor_that_cannot_start_workers_recovers_later(guest_wasm: Path) -> None:
    with Runtime(workers=1) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(guest_wasm).id
        player = Player(runtime)
        player.step(runtime.instantiate(module, "ok"))
        health = runtime.health()
        limits = resource.prlimit(health["pid"], resource.RLIMIT_NOFILE)
        resource.prlimit(health["pid"], resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(health["workers"][0]["pid"], signal.SIGKILL)
        wait_until(lambda: gone(health["workers"][0]["pid"]))
        messages: list[str] = []
        while messages[-3:] != ["no worker is running: worker 0 cannot be started"] * 3:
            with pytest.raises(WorkerDiedError) as caught:
                runtime.instantiate(module, "ok")
            messages.append(":".join(str(caught.value).split(":")[:2]))
            time.sleep(0.1)
        resource.prlimit(health["pid"], resource.RLIMIT_NOFILE, limits)
        wait_until(lambda: "error" not in runtime.health()["workers"][0])
        assert runtime.health()["pid"] == health["pid"]
        assert player.mid(runtime.instantiate(module, "ok")).verb == Verb.SAMPLE


FORKING = """
    import os, sys, time
    from pyaici.client.runtime import Runtime
    from aicirt.contract.messages import StepInput
    from tests.pyaici.client.conftest import VOCABULARY
    from lab.system.waiting import PATIENCE
    runtime = Runtime(sys.argv[1])
    runtime.register(VOCABULARY)
    seqs = [runtime.instantiate("guest", "ok", (1, 2)) for _ in range(3)]
    runtime.begin_step([StepInput(seq) for seq in seqs]).wait()
    if not (child := os.fork()):
        time.sleep(PATIENCE)
        os._exit(0)
    print(child, flush=True)
    if sys.argv[2] == "close":
        runtime.close()
    else:
        os.kill(os.getpid(), 9)
    time.sleep(PATIENCE)
"""


@pytest.mark.parametrize("end", ["close", "die"])
def test_sequences_are_freed_although_a_forked_process_holds_the_socket(runtime: Runtime, end: str) -> None:
    assert runtime._daemon is not None
    command = [sys.executable, "-c", textwrap.dedent(FORKING), str(runtime._daemon.socket_path), end]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        try:
            wait_until(lambda: not sum(worker.get("sequences", 1) for worker in runtime.health()["workers"]))
            assert not gone(child), "the forked process must still run"
        finally:
            os.kill(child, signal.SIGKILL)
            other.kill()


def test_closing_the_runtime_in_a_forked_process_leaves_the_parent_intact(runtime: Runtime) -> None:
    player = Player(runtime)
    seq = player.start("ok")
    player.step(seq)
    if not (child := os.fork()):
        status = 1
        try:
            runtime.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert player.mid(seq, 1).verb == Verb.SAMPLE
    assert player.mid(player.start("ok")).verb == Verb.SAMPLE
    assert runtime._daemon is not None and runtime._daemon.socket_path.exists()


def test_several_dead_workers_cost_at_most_one_wait(
    guest_wasm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyaici.client.channel.PEER_CHECK_SECONDS", 20.0)
    with Runtime(workers=3) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        player = Player(runtime)
        seqs = [player.start("ok") for _ in range(3)]
        player.step(*seqs)
        pids = [worker["pid"] for worker in runtime.health()["workers"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that no worker answers the step
        step = runtime.begin_step([StepInput(seq, tokens=[1]) for seq in seqs])
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(map(gone, pids)))
        started = time.monotonic()
        verdicts = {**step.wait().mid, **step.wait_pre()}
        # /proc may show a zombie whose threads are still ending: then the first worker costs its wait
        assert time.monotonic() - started < 2 * 20.0
        assert [type(verdicts[seq].error) for seq in seqs] == [WorkerDiedError] * 3
