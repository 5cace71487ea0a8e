"""Masks of five constraints: the SDK in Wasm compared with native llguidance."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.messages import Sample
from aicirt.vocab.tokenizer import Speller
from aicirt.wasm import Program
from aicirt.worker.templates import Template
from lab import ROOT
from lab.contestants.llguidance import Llguidance
from lab.inputs.constraints import CONSTRAINTS, Constraint
from lab.inputs.vocabularies import PACKAGES, vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.measurement.timing import alternate, summarise
from lab.report import Report
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller

#: names of passes: the first in a sequence that begins from the snapshot after init, and the second one
COLD, WARM = "cold", "warm"
PASSES = (COLD, WARM)
#: upper limits of our time relative to llguidance, at 131 k tokens
TARGETS = {COLD: 0.35, WARM: 0.05}
#: single constraints count if llguidance needs more than this, us
_WORTH_COMPARING = 20.0
_ROUNDS, _TURNS = 15, 5


class MaskError(AssertionError):
    """A mask differs from llguidance's."""


def run(report: Report) -> None:
    """Measures the microseconds of a mask, with accepting the token before it.

    A figure is the median over all rounds of the mean over the positions of a text. Raises MaskError if two
    engines disagree about a token of text.
    """
    with tempfile.TemporaryDirectory() as folder:
        guests = {
            COLD: build_controller(ROOT / "controllers" / "regex", Path(folder) / "regex.wasm").path,
            WARM: build_controller(
                ROOT / "lab" / "guests" / "regex_again.cpp", Path(folder) / "again.wasm"
            ).path,
        }
        for size in ("32k",) if report.quick else PACKAGES:
            _compare(report, size, vocabulary(size), guests)


def _compare(report: Report, size: str, vocabulary: Vocabulary, guests: dict[str, Path]) -> None:
    loaded = load_for_guests(vocabulary)
    llguidance = Llguidance(vocabulary, loaded)
    spell = Speller([b"" if t in vocabulary.special else text for t, text in enumerate(vocabulary.tokens)])
    contestants: dict[str, Callable[[], float]] = {}
    with LocalWorker(loaded) as worker:
        programs = {name: worker.program(path) for name, path in guests.items()}
        for constraint in CONSTRAINTS:
            tokens = list(spell(constraint.text.encode()))
            walks = _walks(worker, programs, constraint, tokens)
            theirs = partial(_llguidance, llguidance, constraint, tokens)
            _check(vocabulary, constraint, tokens, walks[COLD]()[1], theirs(COLD)[1])
            _check(vocabulary, constraint, tokens, walks[WARM]()[1], theirs(WARM)[1])
            for name in PASSES:
                contestants[f"{constraint.name}.{name}"] = partial(_timed, walks[name])
                contestants[f"{constraint.name}.llguidance_{name}"] = partial(_timed, partial(theirs, name))
        samples = alternate(contestants, 3 if report.quick else _ROUNDS)
    medians = {name: summarise(values).median for name, values in samples.items()}
    for name, values in samples.items():
        report.samples(f"masks.{size}.{name}", values, "us")
        report.figure(f"masks.{size}.{name}_us", medians[name], "us")
    _ratios(report, size, medians)


def _ratios(report: Report, size: str, medians: dict[str, float]) -> None:
    official = size == "131k"
    pairs = [
        (medians[f"{constraint.name}.{name}"], medians[f"{constraint.name}.llguidance_{name}"])
        for name in PASSES
        for constraint in CONSTRAINTS
    ]
    for name, part in zip(PASSES, (pairs[: len(CONSTRAINTS)], pairs[len(CONSTRAINTS) :]), strict=True):
        ratio = sum(ours for ours, _ in part) / sum(theirs for _, theirs in part)
        report.figure(
            f"masks.{size}.{name}_ratio", ratio, "ratio", target=TARGETS[name] if official else None
        )
    worst = max(ours / theirs for ours, theirs in pairs if theirs > _WORTH_COMPARING)
    report.figure(f"masks.{size}.worst_ratio", worst, "ratio", target=1.0 if official else None)


Walk = Callable[[], tuple[float, list[bytes]]]


def _timed(walk: Walk) -> float:
    """Returns the microseconds of a mask, the median of a few walks.

    A median, since the other engine and the garbage collector have filled the caches before the first walk.
    """
    times = []
    for _ in range(_TURNS):
        seconds, masks = walk()
        times.append(seconds / len(masks) * 1e6)
    return summarise(times).median


def _walks(
    worker: LocalWorker, programs: dict[str, Program], constraint: Constraint, tokens: Sequence[int]
) -> dict[str, Walk]:
    """Returns the two passes of our engine. Each returns seconds and masks."""
    cold = worker.template(programs[COLD], constraint.argument)
    warm = worker.template(programs[WARM], constraint.argument_again)
    return {
        COLD: partial(_ours, worker, cold, tokens, passes=1),
        WARM: partial(_ours, worker, warm, tokens, passes=2),
    }


def _ours(
    worker: LocalWorker, template: Template, tokens: Sequence[int], *, passes: int
) -> tuple[float, list[bytes]]:
    """Runs some passes of a new sequence; returns seconds and masks of the last one."""
    seq = worker.start(template)
    for number in range(passes):
        taken, masks = 0.0, []
        for place in range(len(tokens)):
            news = tokens[place - 1 : place] if place else ()
            taken_back = len(tokens) - 1 if number and not place else 0
            mask = worker.mask(seq, news, backtrack=taken_back, sampled=bool(news))
            if not isinstance(mask.row, Sample):
                raise MaskError(f"at token {place} there was no mask, but forced tokens {mask.forced}")
            taken += mask.seconds
            masks.append(worker.row(mask.row))
    worker.free([seq])
    return taken, masks


def _llguidance(
    llguidance: Llguidance, constraint: Constraint, tokens: Sequence[int], name: str
) -> tuple[float, list[bytes]]:
    matcher = llguidance.matcher(constraint)
    first = llguidance.walk(matcher, tokens)
    if name == COLD:
        return first
    matcher.reset()
    return llguidance.walk(matcher, tokens)


def _check(
    vocabulary: Vocabulary,
    constraint: Constraint,
    tokens: Sequence[int],
    ours: Sequence[bytes],
    theirs: Sequence[bytes],
) -> None:
    """Raises MaskError if masks differ. Ignores special tokens and the end: engines differ in them."""
    text = np.array([bool(token) for token in vocabulary.tokens])
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        mine, yours = _bits(one)[: len(text)], _bits(other)[: len(text)]
        if not mine[tokens[place]]:
            raise MaskError(f"{constraint.name}: token {place} of the text is not allowed")
        differing = np.flatnonzero((mine != yours) & text)
        if len(differing):
            shown = [(vocabulary.tokens[t], bool(mine[t])) for t in differing[:5]]
            raise MaskError(
                f"{constraint.name}, token {place}: llguidance disagrees on {len(differing)} tokens: {shown}"
            )


def _bits(mask: bytes) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
