"""Grammars of every sort: masks and compilation of our controllers inside Wasm, beside native engines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.contestants.race import Result, race
from bench.grammar_cases import KBNF, REGEXES, Arena, Controllers, cases
from bench.host import LocalWorker, load_for_guests
from bench.measure import summarise
from bench.report import Report
from bench.vocabularies import vocabulary

#: vocabularies; figures that have a target are those of the last one
SIZES = ("32k", "131k")
_OFFICIAL = SIZES[-1]
_ROUNDS = 7
#: the most that ours may take of what llguidance takes
_MOST_C_RATIO = 1.0
#: the most that masks of KBNF may take, us
_MOST_KBNF_P50, _MOST_KBNF_P99 = 30.0, 300.0


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
            words = vocabulary(size)
            loaded = load_for_guests(words, masks_only=True)
            with LocalWorker(loaded) as worker:
                _cases(report, size, Arena(words, loaded, worker, controllers))


def _cases(report: Report, size: str, arena: Arena) -> None:
    results: dict[str, Mapping[str, Result]] = {}
    for case in cases():
        text = (case.quick or case.text) if report.quick else case.text
        found = race(case.contestants(arena), arena.tokens(text), 2 if report.quick else _ROUNDS)
        results[case.name] = found
        name = f"grammars.{case.name}.{size}"
        for engine, result in found.items():
            _times(report, f"{name}.{engine}", result.mask_us, result.compile_ms)
        if "llguidance" in found:
            target = _MOST_C_RATIO if (case.name, size) == ("c", _OFFICIAL) else None
            report.figure(f"{name}.ratio", _ratio([found]), "ratio", target=target)
    report.figure(f"grammars.regex.{size}.ratio", _ratio([results[name] for name in REGEXES]), "ratio")
    _kbnf(report, size, [results[name]["aici"].mask_us for name in KBNF])


def _times(report: Report, name: str, mask_us: list[float], compile_ms: list[float]) -> None:
    masks = summarise(mask_us)
    report.samples(name, mask_us, "us")
    report.figure(f"{name}_us", masks.mean, "us")
    report.figure(f"{name}_p50_us", masks.median, "us")
    report.figure(f"{name}_p99_us", masks.p99, "us")
    report.figure(f"{name}_compile_ms", summarise(compile_ms).median, "ms")


def _ratio(parts: list[Mapping[str, Result]]) -> float:
    """The mean of ours to that of llguidance, where all texts count alike."""
    ours, theirs = (sum(results[engine].masks.mean for results in parts) for engine in ("aici", "llguidance"))
    return ours / theirs


def _kbnf(report: Report, size: str, texts: list[list[float]]) -> None:
    """Both grammars together, and how much more the last quarter of a text takes than the second."""
    masks = summarise([time for times in texts for time in times])
    name = "grammars.kbnf" if size == _OFFICIAL else f"grammars.kbnf.{size}"
    report.figure(f"{name}.p50_us", masks.median, "us", target=_MOST_KBNF_P50 if size == _OFFICIAL else None)
    report.figure(f"{name}.p99_us", masks.p99, "us", target=_MOST_KBNF_P99 if size == _OFFICIAL else None)
    quarters = [(times[len(times) // 4 : len(times) // 2], times[-len(times) // 4 :]) for times in texts]
    growth = max(summarise(late).median / summarise(early).median for early, late in quarters)
    report.figure(f"{name}.growth_ratio", growth, "ratio")
