"""Controllers in Python and JavaScript compared with C++: starts, steps, forks, memory, sizes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from aicirt.vocab.tokenizer import Speller
from aicirt.wasm.snapshot import fork
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Template
from lab.inputs.constraints import CONSTRAINTS, Constraint
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.measurement.memory import kib_of_each, walked
from lab.measurement.timing import alternate, summarise
from lab.report import Report
from pyaici.bundled import find_controller
from pyaici.client.runtime import Runtime

START_TARGET, STEP_TARGET, FORK_TARGET, MEMORY_TARGET = 2.0, 60.0, 150.0, 256.0
_TOKENS, _QUICK_TOKENS = 50, 5
_TURNS = 5
_ROUNDS, _QUICK_ROUNDS = 60, 1
#: sequences in a measurement of memory, in the short form
_QUICK_SEQUENCES = 3
#: mask rows for each sequence: one held by the engine, one being written
_ROWS = 2
#: constraints that scripts can express as patterns
_MEASURED = tuple(constraint for constraint in CONSTRAINTS if not constraint.until)

#: `leave=False`: like the controller in C++, continue until the model ends its text
_PYTHON = """
from aici import *
PATTERN = regex(arg)
async def main():
    await gen(PATTERN, leave=False)
"""
_JAVASCRIPT = """
import { arg, regex, gen } from "aici";
const PATTERN = regex(arg);
export async function main() {
  await gen(PATTERN, { leave: false });
}
"""
_LANGUAGES = {"py": ("pyctrl", _PYTHON), "js": ("jsctrl", _JAVASCRIPT)}


def run(report: Report) -> None:
    """Reports medians. Steps are timed in the worker, as are those of `regex` with the same tokens."""
    vocab = vocabulary("32k" if report.quick else "131k")
    spell = Speller([b"" if token in vocab.special else text for token, text in enumerate(vocab.tokens)])
    tokens = _QUICK_TOKENS if report.quick else _TOKENS
    texts = {one.name: list(spell(one.long_text.encode()))[:tokens] for one in _measured(report)}
    for name, (controller, _) in _LANGUAGES.items():
        report.figure(f"scripts.{name}.size_kb", find_controller(controller).stat().st_size / 1000, "kB")
    with LocalWorker(load_for_guests(vocab, masks_only=True), num_rows=8) as worker:
        programs = {name: worker.program(find_controller(c)) for name, (c, _) in _LANGUAGES.items()}
        native = worker.program(find_controller("regex"))
        templates = {
            (name, one.name): worker.warm(worker.template(program, _argument(name, one)))
            for name, program in programs.items()
            for one in _measured(report)
        }
        plain = {one.name: worker.warm(worker.template(native, one.argument)) for one in _measured(report)}
        _steps(report, worker, templates, plain, texts)
        _forks(report, worker, templates, texts)
        _memory(report, worker, templates, texts)
    with Runtime() as runtime:
        runtime.register(vocab)
        _starts(report, runtime)


def _argument(language: str, constraint: Constraint) -> str:
    return json.dumps({"script": _LANGUAGES[language][1], "arg": constraint.pattern})


def _steps(
    report: Report,
    worker: LocalWorker,
    templates: dict[tuple[str, str], Template],
    plain: dict[str, Template],
    texts: dict[str, list[int]],
) -> None:
    contestants: dict[str, Callable[[], float]] = {}
    for one in _measured(report):
        contestants[f"native.{one.name}"] = partial(_mean_step, worker, plain[one.name], texts[one.name])
        for language in _LANGUAGES:
            template = templates[language, one.name]
            contestants[f"{language}.{one.name}"] = partial(_mean_step, worker, template, texts[one.name])
    samples = alternate(contestants, _rounds(report))
    beside = [samples[f"native.{one.name}"] for one in _measured(report)]
    means = [sum(values) / len(values) for values in zip(*beside, strict=True)]
    report.figure("scripts.native.step_us", summarise(means).median, "us")
    for language in _LANGUAGES:
        own = [samples[f"{language}.{one.name}"] for one in _measured(report)]
        added = [
            sum(a - b for a, b in zip(mine, others, strict=True)) / len(mine)
            for mine, others in zip(zip(*own, strict=True), zip(*beside, strict=True), strict=True)
        ]
        report.samples(f"scripts.{language}.step_us", added, "us")
        report.figure(f"scripts.{language}.step_us", summarise(added).median, "us", target=STEP_TARGET)


def _mean_step(worker: LocalWorker, template: Template, tokens: Sequence[int]) -> float:
    """Returns the microseconds of a step, the mean over all tokens of a text."""
    seq = worker.start(template)
    seconds = sum(mask.seconds for mask in worker.walk(seq, tokens))
    worker.free([seq])
    return seconds * 1e6 / len(tokens)


def _forks(
    report: Report,
    worker: LocalWorker,
    templates: dict[tuple[str, str], Template],
    texts: dict[str, list[int]],
) -> None:
    """Measures forks of a sequence in the middle of its text."""
    name = _MEASURED[0].name
    parents = {language: walked(worker, templates[language, name], texts[name]) for language in _LANGUAGES}
    samples = alternate(
        {f"scripts.{n}.fork_us": partial(_fork, p) for n, p in parents.items()}, _rounds(report)
    )
    for figure, values in samples.items():
        report.samples(figure, values, "us")
        target = FORK_TARGET if ".py." in figure else None
        report.figure(figure, summarise(values).median, "us", target=target)
    worker.free(parents.values())


def _fork(parent: Guest) -> float:
    """Returns the microseconds until a child is ready for a step, the median of some turns."""

    def turn() -> float:
        start = time.perf_counter()
        (instance,) = fork(parent.instance, 1)
        child = parent.child(1, instance)
        taken = time.perf_counter() - start
        child.leave()
        child.instance.close()
        return taken * 1e6

    return summarise([turn() for _ in range(_TURNS)]).median


def _memory(
    report: Report,
    worker: LocalWorker,
    templates: dict[tuple[str, str], Template],
    texts: dict[str, list[int]],
) -> None:
    """Measures a sequence with its mask rows. Code, vocabulary and snapshot are shared and do not count."""
    rows = _ROWS * worker.layout.row_bytes / 1024
    count = (_QUICK_SEQUENCES,) if report.quick else ()
    for language in _LANGUAGES:
        kib = [
            kib_of_each(worker, templates[language, one.name], texts[one.name], *count)[0]
            for one in _measured(report)
        ]
        report.figure(f"scripts.{language}.kib", sum(kib) / len(kib) + rows, "KiB", target=MEMORY_TARGET)
        snapshot = templates[language, _MEASURED[0].name].snapshot.nbytes / 1024
        report.figure(f"scripts.{language}.snapshot_kib", snapshot, "KiB")


def _starts(report: Report, runtime: Runtime) -> None:
    contestants: dict[str, Callable[[], float]] = {}
    modules = {name: runtime.upload(find_controller(c)).id for name, (c, _) in _LANGUAGES.items()}
    for language, module in modules.items():
        arguments = [_argument(language, one) for one in _measured(report)]
        for argument in arguments:
            _first_mask(runtime, module, argument)  # builds its snapshot
        contestants[f"scripts.{language}.start_ms"] = partial(_mean_start, runtime, module, arguments)
    for name, values in alternate(contestants, _rounds(report)).items():
        report.samples(name, values, "ms")
        report.figure(name, summarise(values).median, "ms", target=START_TARGET)


def _mean_start(runtime: Runtime, module: str, arguments: Sequence[str]) -> float:
    return sum(_first_mask(runtime, module, argument) for argument in arguments) / len(arguments)


def _first_mask(runtime: Runtime, module: str, argument: str) -> float:
    """Returns the milliseconds from the call that starts a sequence to its first mask."""
    start = time.perf_counter()
    seq = runtime.instantiate(module, argument, (1, 2, 3))
    answer = runtime.begin_step([StepInput(seq)]).wait().mid[seq]
    taken = time.perf_counter() - start
    assert answer.verb == Verb.SAMPLE, answer
    runtime.free([seq])
    return taken * 1e3


def _measured(report: Report) -> Sequence[Constraint]:
    return _MEASURED[:1] if report.quick else _MEASURED


def _rounds(report: Report) -> int:
    return _QUICK_ROUNDS if report.quick else _ROUNDS
