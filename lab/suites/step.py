"""Time that a step of many sequences adds between sampling and the next forward pass, with a real daemon."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab import ROOT
from lab.inputs.vocabularies import vocabulary
from lab.measurement.timing import summarise
from lab.report import Report
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller

#: sequences of a small controller with pre_process and post_process -> upper limit of the added time, ms
#: (p50)
CRITICAL = {10: 0.15, 40: 0.3, 256: 1.5}
#: sequences of the regex controller with pre_process and post_process, and of the bundled one, without either
REGEX = 40
OVERLAPPED, OVERLAPPED_TARGET = 40, 0.02
IDLE_TARGET = 1.0
#: one state, so every mask but the first is cached
_PATTERN, _TOKEN = "[a-z]+", b"a"
#: duration of the forward pass; the worker computes its masks and then sleeps
_FORWARD_SECONDS = (0.005, 0.02)
#: duration of masking and sampling, between receiving the masks and posting the next step
_SAMPLING_SECONDS = 0.0003
#: steps of a group in a row; the first ones, with caches full of another group's data, do not count
_BLOCK, _WARM_UP = 24, 4
_ROUNDS = 6
_IDLE_SECONDS = 10.0


def run(report: Report) -> None:
    """Measures groups of sequences in turn, a block of steps at a time."""
    critical = {2: None, 4: None} if report.quick else CRITICAL
    rounds = 2 if report.quick else _ROUNDS
    vocab = vocabulary("32k" if report.quick else "131k")
    token = vocab.tokens.index(_TOKEN)
    with (
        tempfile.TemporaryDirectory() as folder,
        # two daemons: a client that has sequences with a critical part waits for it in every step
        Runtime(num_rows=4 * (sum(critical) + REGEX)) as runtime,
        Runtime(num_rows=4 * OVERLAPPED) as other,
    ):
        for client in (runtime, other):
            client.register(vocab)
        guests = ROOT / "lab" / "guests"
        steady = _upload(runtime, guests / "steady.c", folder)
        regex_on_path = _upload(runtime, guests / "regex_on_path.cpp", folder)
        regex = _upload(other, ROOT / "controllers" / "regex", folder)
        groups = {f"critical.{count}": Group(runtime, steady, "", count, token) for count in critical}
        groups[f"critical_regex.{REGEX}"] = Group(runtime, regex_on_path, _PATTERN, REGEX, token)
        groups[f"overlapped.{OVERLAPPED}"] = Group(other, regex, _PATTERN, OVERLAPPED, token)
        for _ in range(rounds):
            for group in groups.values():
                for engine in group.times:
                    for number in range(_WARM_UP + 3 if report.quick else _BLOCK):
                        group.step(engine, keep=number >= _WARM_UP)
        for engine in ENGINES:
            _report(report, groups, critical, engine)
        _idle(report, runtime, 1.0 if report.quick else _IDLE_SECONDS)


def _upload(runtime: Runtime, source: Path, folder: str) -> str:
    built = build_controller(source, Path(folder) / f"{source.stem}.wasm")
    return runtime.upload(built.path).id


def _look(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


#: suffix of the figures -> how the engine's thread spends the time of a forward pass and of sampling. With a
#: GPU it launches kernels and then polls for their end without sleeping, as CUDA does by default. If it
#: sleeps, it finds its processor asleep and the caches filled by others: the worst case
ENGINES: dict[str, Callable[[float], None]] = {"": _look, "_asleep": time.sleep}


@dataclass(slots=True)
class Times:
    """Times of the steps of a group with one kind of engine, ms."""

    #: begin_step
    begin: list[float] = field(default_factory=list)
    #: begin_step and wait_pre
    critical: list[float] = field(default_factory=list)
    #: wait
    wait: list[float] = field(default_factory=list)


class Group:
    """Sequences that are stepped together, and the times of their steps."""

    def __init__(self, runtime: Runtime, module: str, argument: str, count: int, token: int) -> None:
        self._runtime = runtime
        self._token = [token]
        self._answers: dict[int, MidResult] = {}
        self._seqs = [runtime.instantiate(module, argument, (1, 2, 3)) for _ in range(count)]
        self._random = random.Random(count)
        self.times = {engine: Times() for engine in ENGINES}

    def step(self, engine: str, *, keep: bool) -> None:
        """Runs a step. Raises AssertionError if a sequence ends."""
        times, work = self.times[engine], ENGINES[engine]
        work(_SAMPLING_SECONDS)
        inputs = [self._input(seq) for seq in self._seqs]
        start = time.perf_counter()
        step = self._runtime.begin_step(inputs)
        posted = time.perf_counter()
        step.wait_pre()
        ready = time.perf_counter()
        work(self._random.uniform(*_FORWARD_SECONDS))
        asked = time.perf_counter()
        self._answers = step.wait().mid
        received = time.perf_counter()
        if keep:
            times.begin.append((posted - start) * 1e3)
            times.critical.append((ready - start) * 1e3)
            times.wait.append((received - asked) * 1e3)

    def _input(self, seq: int) -> StepInput:
        answer = self._answers.get(seq)
        if answer is None or answer.verb == Verb.LATE:  # the first step, or a busy machine
            return StepInput(seq)
        assert answer.verb == Verb.SAMPLE, answer
        return StepInput(seq, self._token, sampled=True)


def _report(report: Report, groups: dict[str, Group], critical: dict[int, Any], engine: str) -> None:
    for count, target in critical.items():
        times = groups[f"critical.{count}"].times[engine]
        _figures(report, f"step.critical{engine}", count, times.critical, None if engine else target)
        report.figure(f"step.begin{engine}_ms.{count}", summarise(times.begin).median, "ms")
        report.figure(f"step.wait{engine}_ms.{count}", summarise(times.wait).median, "ms")
    times = groups[f"critical_regex.{REGEX}"].times[engine]
    _figures(report, f"step.critical_regex{engine}", REGEX, times.critical, None)
    times = groups[f"overlapped.{OVERLAPPED}"].times[engine]
    target = None if engine else OVERLAPPED_TARGET
    _figures(report, f"step.overlapped{engine}", OVERLAPPED, times.begin, target)
    report.figure(f"step.overlapped_wait{engine}_ms.{OVERLAPPED}", summarise(times.wait).median, "ms")


def _figures(report: Report, name: str, count: int, samples: Sequence[float], target: float | None) -> None:
    summary = summarise(samples)
    report.samples(f"{name}_ms.{count}", samples, "ms")
    report.figure(f"{name}_ms.{count}", summary.median, "ms", target=target)
    report.figure(f"{name}_p99_ms.{count}", summary.p99, "ms")


def _idle(report: Report, runtime: Runtime, seconds: float) -> None:
    """Measures the CPU time of a worker whose sequences wait for their next step."""
    pids = [worker["pid"] for worker in runtime.health()["workers"]]
    start, before = time.monotonic(), [_cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    taken = time.monotonic() - start
    shares = [(_cpu_seconds(pid) - used) / taken for pid, used in zip(pids, before, strict=True)]
    report.figure("step.idle_cpu_pct", 100 * max(shares), "%", target=IDLE_TARGET)


def _cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds of all current threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
