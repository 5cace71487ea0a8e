"""Forks and starts of sequences, as timed in a worker and by a client; memory of a sequence."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from aicirt.vocab.tokenizer import Speller
from aicirt.wasm.snapshot import fork
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Template
from lab import ROOT
from lab.inputs.constraints import CONSTRAINTS
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.measurement.memory import kib_of_each
from lab.measurement.timing import alternate, summarise
from lab.report import Report
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller

#: memory of the guest in MiB -> upper limit of a fork inside the worker, us
FORKS = {1: 100.0, 4: 130.0, 16: 250.0}
NEXT_CHILD_TARGET, START_WORKER_TARGET, START_CLIENT_TARGET = 60.0, 100.0, 1.0
MEMORY_TARGET = 160.0
_CHILDREN, _TURNS = 5, 5
_ROUNDS, _QUICK_ROUNDS = 150, 1
#: tokens of each sequence whose memory is measured
_TOKENS, _QUICK_TOKENS = 50, 3
_QUICK_SEQUENCES = 4
#: first steps of a sequence whose masks are timed together
_FIRST_STEPS, _QUICK_FIRST_STEPS = 32, 3
#: mask rows for each sequence: one held by the engine, one being written
_ROWS = 2


def run(report: Report) -> None:
    """Reports medians. Freeing sequences is not timed."""
    size = "32k" if report.quick else "131k"
    vocab = vocabulary(size)
    with tempfile.TemporaryDirectory() as folder:
        ballast = build_controller(ROOT / "lab" / "guests" / "ballast.c", Path(folder) / "ballast.wasm").path
        regex = build_controller(ROOT / "controllers" / "regex", Path(folder) / "regex.wasm").path
        with LocalWorker(load_for_guests(vocab), num_rows=8) as worker:
            _worker(report, worker, ballast, regex)
            _memory(report, worker, regex, vocab)
            _first_steps(report, worker, regex, vocab)
        with Runtime() as runtime:
            runtime.register(vocab)
            _client(report, runtime, ballast, regex)


def _worker(report: Report, worker: LocalWorker, ballast: Path, regex: Path) -> None:
    program = worker.program(ballast)
    parents = {mib: worker.start(worker.template(program, str(mib))) for mib in FORKS}
    contestants: dict[str, Callable[[], float]] = {
        f"fork.us.{mib}mb": partial(_fork, parent, 1) for mib, parent in parents.items()
    }
    contestants["next_child"] = partial(_fork, parents[1], 1 + _CHILDREN)
    plain = CONSTRAINTS[0]
    template = worker.template(worker.program(regex), plain.argument)
    contestants["start.worker_us"] = partial(_start, worker, template)
    contestants["start.worker_warm_us"] = partial(_start, worker, worker.warm(template))
    samples = alternate(contestants, _rounds(report))
    several, one = samples.pop("next_child"), samples["fork.us.1mb"]
    samples["fork.us.next_child"] = [(a - b) / _CHILDREN for a, b in zip(several, one, strict=True)]
    targets = {f"fork.us.{mib}mb": target for mib, target in FORKS.items()}
    targets |= {"fork.us.next_child": NEXT_CHILD_TARGET, "start.worker_us": START_WORKER_TARGET}
    for name, values in samples.items():
        report.samples(name, values, "us")
        report.figure(name, summarise(values).median, "us", target=targets.get(name))
    worker.free(parents.values())


def _fork(parent: Guest, count: int) -> float:
    """Returns the microseconds until `count` children of a sequence are ready for a step."""

    def turn() -> float:
        start = time.perf_counter()
        instances = fork(parent.instance, count)
        children = [parent.child(number, instance) for number, instance in enumerate(instances)]
        taken = time.perf_counter() - start
        for child in children:
            child.leave()
            child.instance.close()
        return taken * 1e6

    return _middle(turn)


def _start(worker: LocalWorker, template: Template) -> float:
    """Returns the microseconds from the message that starts a sequence to its answer."""

    def turn() -> float:
        start = time.perf_counter()
        seq = worker.start(template, (1, 2, 3))
        taken = time.perf_counter() - start
        worker.free([seq])
        return taken * 1e6

    return _middle(turn)


def _middle(turn: Callable[[], float]) -> float:
    """Returns the median of a few turns: the first one finds caches that the garbage collector has filled."""
    return summarise([turn() for _ in range(_TURNS)]).median


def _client(report: Report, runtime: Runtime, ballast: Path, regex: Path) -> None:
    module = runtime.upload(ballast).id
    parents = {mib: runtime.instantiate(module, str(mib), (1, 2, 3)) for mib in FORKS}
    contestants: dict[str, Callable[[], float]] = {
        f"fork.client_us.{mib}mb": partial(_clone, runtime, parent) for mib, parent in parents.items()
    }
    module = runtime.upload(regex).id
    for constraint in CONSTRAINTS:
        first = partial(_first_mask, runtime, module, constraint.argument)
        first()  # builds the argument's snapshot
        contestants[f"start.client_ms.{constraint.name}"] = first
    samples = alternate(contestants, _rounds(report))
    for name, values in samples.items():
        unit = "ms" if "_ms" in name else "us"
        report.samples(name, values, unit)
        report.figure(name, summarise(values).median, unit)
    starts = [values for name, values in samples.items() if name.startswith("start.")]
    means = [sum(values) / len(values) for values in zip(*starts, strict=True)]
    report.figure("start.client_ms", summarise(means).median, "ms", target=START_CLIENT_TARGET)


def _clone(runtime: Runtime, parent: int) -> float:
    def turn() -> float:
        start = time.perf_counter()
        child = runtime.clone(parent)
        taken = time.perf_counter() - start
        runtime.free([child])
        return taken * 1e6

    return _middle(turn)


def _first_mask(runtime: Runtime, module: str, argument: str) -> float:
    """Returns the milliseconds from the call that starts a sequence to its first mask."""

    def turn() -> float:
        start = time.perf_counter()
        seq = runtime.instantiate(module, argument, (1, 2, 3))
        answer = runtime.begin_step([StepInput(seq)]).wait().mid[seq]
        taken = time.perf_counter() - start
        assert answer.verb == Verb.SAMPLE and answer.row is not None, answer
        runtime.free([seq])
        return taken * 1e3

    return _middle(turn)


def _memory(report: Report, worker: LocalWorker, regex: Path, vocab: Vocabulary) -> None:
    """Measures by how much each sequence makes the private memory (unique set) of the process grow.

    Code, vocabulary and the snapshot after init are shared by all sequences and do not count.
    """
    program = worker.program(regex)
    spell = Speller([b"" if token in vocab.special else text for token, text in enumerate(vocab.tokens)])
    rows = _ROWS * worker.layout.row_bytes / 1024
    count = (_QUICK_SEQUENCES,) if report.quick else ()
    guests, warm, tables = [], [], []
    for constraint in CONSTRAINTS:
        template = worker.template(program, constraint.argument)
        tokens = list(spell(constraint.long_text.encode()))[: _QUICK_TOKENS if report.quick else _TOKENS]
        kib, mapped = kib_of_each(worker, template, tokens, *count)
        guests.append(kib)
        tables.append(mapped)
        report.figure(f"memory.guest_kib.{constraint.name}", kib, "KiB")
        warm.append(kib_of_each(worker, worker.warm(template), tokens, *count)[0])
        report.figure(f"memory.guest_warm_kib.{constraint.name}", warm[-1], "KiB")
    report.figure("memory.mask_rows_kib", rows, "KiB")
    report.figure("memory.page_tables_kib", sum(tables) / len(tables), "KiB")
    mean = sum(guests) / len(guests)
    report.figure("memory.per_sequence_kib", mean + rows, "KiB", target=MEMORY_TARGET)
    report.figure("memory.per_warm_sequence_kib", sum(warm) / len(warm) + rows, "KiB", target=MEMORY_TARGET)


def _first_steps(report: Report, worker: LocalWorker, regex: Path, vocab: Vocabulary) -> None:
    """Measures the microseconds of the masks of a sequence's first steps together, mean over all constraints.

    Sequences begin from the snapshot after init, and from the snapshot whose tables are filled ahead.
    """
    program = worker.program(regex)
    spell = Speller([b"" if token in vocab.special else text for token, text in enumerate(vocab.tokens)])
    contestants: dict[str, Callable[[], float]] = {}
    for constraint in CONSTRAINTS:
        tokens = list(spell(constraint.long_text.encode()))[
            : _QUICK_FIRST_STEPS if report.quick else _FIRST_STEPS
        ]
        cold = worker.template(program, constraint.argument)
        for name, template in (("cold", cold), ("warm", worker.warm(cold))):
            contestants[f"{name}.{constraint.name}"] = partial(_masks, worker, template, tokens)
            size = template.snapshot.nbytes / 1024
            report.figure(f"start.snapshot_{name}_kib.{constraint.name}", size, "KiB")
    samples = alternate(contestants, max(1, _rounds(report) // 5))
    for name in ("cold", "warm"):
        of_all = [samples[f"{name}.{constraint.name}"] for constraint in CONSTRAINTS]
        means = [sum(values) / len(values) for values in zip(*of_all, strict=True)]
        report.samples(f"start.first_steps_{name}_us", means, "us")
        for constraint, values in zip(CONSTRAINTS, of_all, strict=True):
            median = summarise(values).median
            report.figure(f"start.first_steps_{name}_us.{constraint.name}", median, "us")
        report.figure(f"start.first_steps_{name}_us", summarise(means).median, "us")


def _masks(worker: LocalWorker, template: Template, tokens: Sequence[int]) -> float:
    def turn() -> float:
        seq = worker.start(template)
        seconds = sum(mask.seconds for mask in worker.walk(seq, tokens))
        worker.free([seq])
        return seconds * 1e6

    return _middle(turn)


def _rounds(report: Report) -> int:
    return _QUICK_ROUNDS if report.quick else _ROUNDS
