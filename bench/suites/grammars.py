"""Grammars of every sort: masks and compilation of our controllers inside Wasm, beside native engines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.contestants.race import Result, race
from bench.grammar_cases import REGEXES, Arena, Controllers, cases
from bench.host import LocalWorker, load_for_guests
from bench.report import Report
from bench.vocabularies import vocabulary

SIZES = ("32k", "131k")
_ROUNDS = 7
#: the most that ours may take of what llguidance takes
_TARGETS = {"grammars.c.131k": 1.0}


def run(report: Report) -> None:
    """Of each grammar, engine and vocabulary: microseconds of a mask, the token before it included (mean, p50
    and p99 over the tokens of a text, of each token the median of all rounds), and milliseconds from the text
    of the grammar to where masks can be asked for (p50). Every round compiles anew: nothing is known before.

    Ours does not force tokens here: every step has a mask, as every step of the others has one.
    Raises RaceError if an engine forbids a token of its text.
    """
    with tempfile.TemporaryDirectory() as folder:
        controllers = Controllers(Path(folder))
        for size in SIZES[:1] if report.quick else SIZES:
            _compare(report, size, controllers)


def _compare(report: Report, size: str, controllers: Controllers) -> None:
    words = vocabulary(size)
    loaded = load_for_guests(words, masks_only=True)
    results: dict[str, Mapping[str, Result]] = {}
    with LocalWorker(loaded) as worker:
        arena = Arena(words, loaded, worker, controllers)
        for case in cases():
            text = (case.quick or case.text) if report.quick else case.text
            contestants = case.contestants(arena)
            results[case.name] = race(contestants, arena.tokens(text), 2 if report.quick else _ROUNDS)
            _report(report, f"grammars.{case.name}.{size}", results[case.name])
    _ratio(report, f"grammars.regex.{size}", [results[name] for name in REGEXES])


def _report(report: Report, name: str, results: Mapping[str, Result]) -> None:
    for engine, result in results.items():
        masks = result.masks
        report.samples(f"{name}.{engine}", result.mask_us, "us")
        report.figure(f"{name}.{engine}_us", masks.mean, "us")
        report.figure(f"{name}.{engine}_p50_us", masks.median, "us")
        report.figure(f"{name}.{engine}_p99_us", masks.p99, "us")
        report.figure(f"{name}.{engine}_compile_ms", result.compilation.median, "ms")
    _ratio(report, name, [results])


def _ratio(report: Report, name: str, parts: list[Mapping[str, Result]]) -> None:
    """The mean of ours to that of llguidance, where all texts count alike."""
    ours, theirs = (sum(results[engine].masks.mean for results in parts) for engine in ("aici", "llguidance"))
    report.figure(f"{name}.ratio", ours / theirs, "ratio", target=_TARGETS.get(name))
