"""How greedy sequences, a busy machine, dying workers and other clients affect well-behaved sequences."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, WorkerDiedError
from aicirt.contract.messages import StepInput
from lab import ROOT
from lab.attacks.modules import slow_module, straight_module
from lab.attacks.offender import INITS, KINDS, offender
from lab.inputs.vocabularies import vocabulary
from lab.measurement.timing import percentile, summarise
from lab.report import Report
from pyaici.client.control import Daemon
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller

VICTIM_TARGET, RECOVERY_TARGET, TOGETHER_TARGET = 3.0, 100.0, 0.95
FIRST_MASK_TARGET = 500.0
#: sequences of a small controller with pre_process and post_process
_VICTIMS, _STEPS = 8, 400
_FORWARD_SECONDS = (0.008, 0.012)
#: number of processes that never sleep, and of calls beside them
_BUSY_PROCESSES, _CALLS = 8, 10_000
_KILLS = 20
_TOGETHER_SECONDS = 6.0
#: sequences of another owner with long straight-line code
_STRAIGHT = 8
#: new arguments, and attempts until there is a mask for each
_ARGUMENTS, _ATTEMPTS = 40, 5
_SIZE = "32k"
_TOKEN = b"a"


def run(report: Report) -> None:
    """Measures each part with a separate daemon that has one worker."""
    with tempfile.TemporaryDirectory() as folder:
        guests = ROOT / "lab" / "guests"
        steady, greedy = (
            build_controller(guests / f"{name}.c", Path(folder) / f"{name}.wasm").path
            for name in ("steady", "greedy")
        )
        _victims(report, steady, greedy)
        _false_kills(report, steady)
        _recovery(report, steady)
        _two_clients(report, steady)
        regex = build_controller(ROOT / "controllers" / "regex", Path(folder) / "regex.wasm").path
        _first_masks(report, regex)


class Batch:
    """Sequences that an engine steps together."""

    def __init__(self, runtime: Runtime, module: str, count: int) -> None:
        vocab = vocabulary(_SIZE)
        runtime.register(vocab)
        self.runtime = runtime
        self._token = [vocab.tokens.index(_TOKEN)]
        self.seqs = [runtime.instantiate(module, "", (1, 2, 3)) for _ in range(count)]
        self.answers: dict[int, MidResult] = {}
        #: sequences that ended with an error in the last step
        self.ended: set[int] = set()
        self._random = random.Random(count)

    def step(self, others: Sequence[int] = (), *, forward: bool = True) -> float:
        """Runs a step, with `others` along without tokens; returns the ms that an engine waits in it."""
        inputs = [StepInput(seq) for seq in others]
        for seq in self.seqs:
            answer = self.answers.get(seq)
            sampled = answer is not None and answer.verb == Verb.SAMPLE
            inputs.append(StepInput(seq, self._token, sampled=True) if sampled else StepInput(seq))
        start = time.perf_counter()
        step = self.runtime.begin_step(inputs)
        pre = step.wait_pre()
        ready = time.perf_counter()
        if forward:
            time.sleep(self._random.uniform(*_FORWARD_SECONDS))
        asked = time.perf_counter()
        self.answers = step.wait().mid
        verbs = [*((seq, found.verb) for seq, found in pre.items())]
        verbs += [(seq, found.verb) for seq, found in self.answers.items()]
        self.ended = {seq for seq, verb in verbs if verb == Verb.ERROR}
        return (ready - start + time.perf_counter() - asked) * 1e3


def _victims(report: Report, steady: Path, greedy: Path) -> None:
    """Measures steps beside offenders of another client, and beside an offender in the same batch."""
    steps = 4 if report.quick else _STEPS
    times: dict[str, list[float]] = {}
    with Daemon(workers=1) as daemon, Runtime(daemon.socket_path) as runtime:
        batch = Batch(runtime, runtime.upload(steady).id, _VICTIMS)
        module = runtime.upload(greedy).id
        per_ms = _rounds_per_ms(runtime, module)
        times["alone"] = [batch.step() for _ in range(steps)]
        for kinds in (*((kind,) for kind in KINDS), KINDS):
            with ExitStack() as stack:
                for kind in kinds:
                    stack.enter_context(offender(kind, daemon.socket_path, module, per_ms, _SIZE))
                times["all" if len(kinds) > 1 else kinds[0]] = [batch.step() for _ in range(steps)]
        for kind, rounds in (("busy", f"{18 * per_ms:.0f}"), ("runaway", "-1")):
            times[f"batch_{kind}"] = _in_batch(batch, module, f"0 {rounds}", steps)
        straight = runtime.upload(straight_module()).id
        times["straight_line"] = _in_batch(batch, straight, "", steps, count=_STRAIGHT, owner="straight")
    worst = 0.0
    for name, values in times.items():
        report.samples(f"fairness.{name}_ms", values, "ms")
        p99 = percentile(values, 99)
        report.figure(f"fairness.{name}_p99_ms", p99, "ms")
        worst = max(worst, p99 if name != "alone" else 0.0)
    report.figure("fairness.victim_p99_ms", worst, "ms", target=VICTIM_TARGET)


def _in_batch(
    batch: Batch, module: str, arg: str, steps: int, *, count: int = 1, owner: str | None = None
) -> list[float]:
    """Measures steps that include greedy sequences. Replaces each greedy sequence that the worker ends."""
    times, runtime = [], batch.runtime
    greedy = [runtime.instantiate(module, arg, owner=owner) for _ in range(count)]
    for _ in range(steps):
        times.append(batch.step(greedy))
        for place, seq in enumerate(greedy):
            if seq in batch.ended:
                greedy[place] = runtime.instantiate(module, arg, owner=owner)
    runtime.free(greedy)
    return times


def _rounds_per_ms(runtime: Runtime, module: str) -> float:
    """Returns how many rounds of its loop the greedy guest does in a millisecond on this machine."""
    rounds, times = 3000, []
    seq = runtime.instantiate(module, f"0 {rounds}")
    for _ in range(20):
        start = time.perf_counter()
        runtime.begin_step([StepInput(seq)]).wait()
        times.append((time.perf_counter() - start) * 1e3)
    runtime.free([seq])
    return rounds / summarise(times).median


def _first_masks(report: Report, regex: Path) -> None:
    """Measures from `instantiate` of a new argument to its first mask.

    Once alone, and once beside another owner whose guests never return from the calls before the first step.
    """
    count = 2 if report.quick else _ARGUMENTS
    with Daemon(workers=1) as daemon, Runtime(daemon.socket_path, owner="victim") as runtime:
        runtime.register(vocabulary(_SIZE))
        module, slow = runtime.upload(regex).id, runtime.upload(slow_module()).id
        errors = _first_mask(runtime, module, "[a-z]")  # the first call loads the module
        for name, numbers in (("alone", range(count)), ("beside_abuse", range(count, 2 * count))):
            with ExitStack() as stack:
                if name != "alone":
                    stack.enter_context(offender(INITS, daemon.socket_path, slow, 1.0, _SIZE))
                    time.sleep(1)  # until each of its connections has a call under way
                times = []
                for number in numbers:
                    start = time.perf_counter()
                    errors += _first_mask(runtime, module, f"[a-z]{{1,{number + 2}}} [0-9]+")
                    times.append((time.perf_counter() - start) * 1e3)
            report.samples(f"fairness.first_mask_{name}_ms", times, "ms")
            target = None if name == "alone" else FIRST_MASK_TARGET
            report.figure(f"fairness.first_mask_{name}_ms", percentile(times, 99), "ms", target=target)
        report.figure("fairness.first_mask_errors", errors, "errors", target=0)


def _first_mask(runtime: Runtime, module: str, arg: str) -> int:
    """Tries until there is a mask; returns the number of errors."""
    for errors in range(_ATTEMPTS):
        try:
            seq = runtime.instantiate(module, arg, (1, 2, 3))
            while (answer := runtime.begin_step([StepInput(seq)]).wait().mid[seq]).verb == Verb.LATE:
                pass
        except AiciError:
            continue
        if answer.verb != Verb.ERROR:
            runtime.free([seq])
            return errors
    return _ATTEMPTS


def _false_kills(report: Report, steady: Path) -> None:
    calls, errors, late = 80 if report.quick else _CALLS, 0, 0
    with _busy_machine(1 if report.quick else _BUSY_PROCESSES), Runtime(workers=1) as runtime:
        batch = Batch(runtime, runtime.upload(steady).id, 40)
        for _ in range(calls // 40):
            batch.step(forward=False)
            errors += sum(answer.verb == Verb.ERROR for answer in batch.answers.values())
            late += sum(answer.verb == Verb.LATE for answer in batch.answers.values())
    report.figure("fairness.false_kills", errors, "calls", target=0)
    report.figure("fairness.false_lates", late, "calls")


@contextmanager
def _busy_machine(count: int) -> Iterator[None]:
    """Runs processes that never sleep."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def _recovery(report: Report, steady: Path) -> None:
    """Measures from the SIGKILL of a worker in the middle of a step to the typed error at the client."""
    times = []
    for number in range(1 if report.quick else _KILLS):
        with Runtime(workers=1) as runtime:
            batch = Batch(runtime, runtime.upload(steady).id, _VICTIMS)
            batch.step()
            (worker,) = runtime.health()["workers"]
            killed = [0.0]

            def kill(pid: int = worker["pid"], killed: list[float] = killed) -> None:
                killed[0] = time.perf_counter()
                os.kill(pid, signal.SIGKILL)

            os.kill(worker["pid"], signal.SIGSTOP)  # so that the step is under way
            timer = threading.Timer(0.02 + 0.005 * (number % 10), kill)
            timer.start()
            batch.step(forward=False)
            times.append((time.perf_counter() - killed[0]) * 1e3)
            timer.join()
            assert all(isinstance(answer.error, WorkerDiedError) for answer in batch.answers.values())
    report.samples("fairness.recovery_ms", times, "ms")
    report.figure("fairness.recovery_ms", max(times), "ms", target=RECOVERY_TARGET)


def _two_clients(report: Report, steady: Path) -> None:
    """Compares the steps of two clients together with those of one, in turn. The worker is never idle."""
    seconds = 0.05 if report.quick else _TOGETHER_SECONDS / 4
    alone, together = [], []
    with Daemon(workers=1) as daemon, ExitStack() as stack:
        runtimes = [stack.enter_context(Runtime(daemon.socket_path)) for _ in range(2)]
        module = runtimes[0].upload(steady).id
        batches = [Batch(runtime, module, 20) for runtime in runtimes]
        for _ in range(2 if report.quick else 4):
            alone.append(_rate(batches[:1], seconds))
            together.append(_rate(batches, seconds))
    ratio = summarise(together).median / summarise(alone).median
    report.figure("fairness.alone_steps_per_s", summarise(alone).median, "1/s")
    report.figure("fairness.two_clients_ratio", ratio, "ratio")


def _rate(batches: Sequence[Batch], seconds: float) -> float:
    """Returns the steps per second of all batches. All of them always have a step under way."""
    done, start = 0, time.perf_counter()
    steps = [batch.runtime.begin_step([StepInput(seq) for seq in batch.seqs]) for batch in batches]
    while time.perf_counter() - start < seconds:
        for place, batch in enumerate(batches):
            steps[place].wait()
            steps[place] = batch.runtime.begin_step([StepInput(seq) for seq in batch.seqs])
            done += 1
    rate = done / (time.perf_counter() - start)
    for step in steps:
        step.wait()
    return rate
