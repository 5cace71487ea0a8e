"""Masks and compilation for many kinds of grammars: controllers in Wasm compared with native engines."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicirt.settings import WorkerConfig
from lab.contestants import Contestant
from lab.contestants.grammar_cases import KBNF, REGEXES, Arena, Controllers, cases
from lab.contestants.native import Xgrammar
from lab.contestants.race import Result, race
from lab.contestants.schema_race import Pool, race_schemas
from lab.inputs.schemas import real_schemas
from lab.inputs.tool_schema import tool_schema
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.measurement.timing import summarise
from lab.report import Report

#: vocabularies; figures of the last one have targets
SIZES = ("32k", "131k")
_OFFICIAL = SIZES[-1]
_ROUNDS = 7
#: upper limit of our time relative to llguidance
_MAX_C_RATIO = 1.0
#: upper limits of masks of KBNF, us
_MAX_KBNF_P50, _MAX_KBNF_P99 = 30.0, 300.0
#: upper limits of our time relative to llguidance for JSON schemas: masks, and p50 of compilation
_MAX_SCHEMA_RATIO, _MAX_SCHEMA_COMPILE_RATIO = 1.5, 2.0
_SCHEMA_ROUNDS = 3
#: every n-th published schema is used; number of schemas for xgrammar, which takes seconds for each
_EVERY, _SLOW = 2, 15
#: upper limits for a tool of fifty properties, ms: until masks can be computed; start of later requests
_MAX_BUILD_MS, _MAX_START_MS = 20.0, 0.3


def run(report: Report) -> None:
    """Measures masks and compilation of each grammar, engine and vocabulary.

    Figures of masks are microseconds, with accepting the token before: mean, p50 and p99 over the tokens of a
    text, where each token counts with the median of all rounds. Figures of compilation are milliseconds
    (p50), from the text of the grammar until masks can be computed. Every round compiles anew.

    Our controllers do not force tokens here, so that every step has a mask, as with the other engines. Raises
    RaceError if an engine forbids a token of its text.
    """
    with tempfile.TemporaryDirectory() as folder:
        controllers = Controllers(Path(folder))
        for size in SIZES[:1] if report.quick else SIZES:
            words = vocabulary(size)
            loaded = load_for_guests(words, masks_only=True)
            # a long limit, so that slow masks show in the figures
            with LocalWorker(loaded, config=WorkerConfig.with_overrides({"mid_ms": 1000})) as worker:
                arena = Arena(words, loaded, worker, controllers)
                _cases(report, size, arena)
                _schemas(report, size, arena)
        _tool(report, controllers)


def _cases(report: Report, size: str, arena: Arena) -> None:
    results: dict[str, Mapping[str, Result]] = {}
    for case in cases():
        text = (case.quick or case.text) if report.quick else case.text
        found = race(case.contestants(arena), arena.tokens(text), 1 if report.quick else _ROUNDS)
        results[case.name] = found
        name = f"grammars.{case.name}.{size}"
        for engine, result in found.items():
            _times(report, f"{name}.{engine}", result.mask_us, result.compile_ms)
        if "llguidance" in found:
            target = _MAX_C_RATIO if (case.name, size) == ("c", _OFFICIAL) else None
            report.figure(f"{name}.ratio", _ratio([found]), "ratio", target=target)
    report.figure(f"grammars.regex.{size}.ratio", _ratio([results[name] for name in REGEXES]), "ratio")
    _kbnf(report, size, [results[name]["aici"].mask_us for name in KBNF])


def _schemas(report: Report, size: str, arena: Arena) -> None:
    """Measures all schemas that both engines accept, and some of them with xgrammar, which takes longer."""

    def two(schema: Any) -> list[Contestant]:
        return [arena.aici_schema(schema), arena.llguidance_schema(schema)]

    def three(schema: Any) -> list[Contestant]:
        return [*two(schema), Xgrammar.of_schema(arena.natives, schema)]

    name = f"grammars.json_schema.{size}"
    samples = real_schemas(150 if report.quick else _EVERY)
    pool = race_schemas(arena.tokens, samples, two, 1 if report.quick else _SCHEMA_ROUNDS)
    _pool(report, name, pool)
    _schema_ratios(
        report, name if size != _OFFICIAL else "grammars.json_schema", pool, official=size == _OFFICIAL
    )
    few = pool.taken[:: len(pool.taken) // _SLOW + 1][: 1 if report.quick else None]
    _pool(report, f"{name}_few", race_schemas(arena.tokens, few, three, 1))


def _pool(report: Report, name: str, pool: Pool) -> None:
    report.figure(f"{name}.schemas", len(pool.taken), "schemas")
    for engine in pool.mask_us:
        _times(report, f"{name}.{engine}", pool.mask_us[engine], pool.compile_ms[engine])
        report.figure(f"{name}.{engine}_refused", pool.refused[engine], "schemas")
        stricter = pool.stricter.get(engine, [])
        report.figure(f"{name}.{engine}_stricter", len(stricter), "schemas")
        if stricter:
            print(
                f"{engine} accepts these schemas, but not their instances: {', '.join(stricter)}",
                file=sys.stderr,
            )


def _schema_ratios(report: Report, name: str, pool: Pool, *, official: bool) -> None:
    ours, theirs = (summarise(pool.mask_us[engine]) for engine in ("aici", "llguidance"))
    our_time, their_time = (summarise(pool.compile_ms[engine]).median for engine in ("aici", "llguidance"))
    for what, value, most in (
        ("mean_ratio", ours.mean / theirs.mean, _MAX_SCHEMA_RATIO),
        ("p99_ratio", ours.p99 / theirs.p99, _MAX_SCHEMA_RATIO),
        ("compile_ratio", our_time / their_time, _MAX_SCHEMA_COMPILE_RATIO),
    ):
        report.figure(f"{name}.{what}", value, "ratio", target=most if official else None)


def _tool(report: Report, controllers: Controllers) -> None:
    """Measures requests for a tool of fifty properties, with forced tokens: the first one and later ones."""
    words = vocabulary(SIZES[0] if report.quick else _OFFICIAL)
    build_ms, start_ms = [], []
    with LocalWorker(load_for_guests(words)) as worker:
        program = worker.program(controllers["json_schema"])
        for _ in range(1 if report.quick else 20):
            begin = time.perf_counter()
            template = worker.template(program, json.dumps(tool_schema()))
            build_ms.append((time.perf_counter() - begin) * 1e3)
            begin = time.perf_counter()
            sequence = worker.start(template)
            start_ms.append((time.perf_counter() - begin) * 1e3)
            worker.free([sequence])
    for name, values, most in (
        ("build_ms", build_ms, _MAX_BUILD_MS),
        ("start_ms", start_ms, _MAX_START_MS),
    ):
        report.samples(f"grammars.tools50.{name}", values, "ms")
        report.figure(f"grammars.tools50.{name}", summarise(values).median, "ms", target=most)


def _times(report: Report, name: str, mask_us: list[float], compile_ms: list[float]) -> None:
    masks = summarise(mask_us)
    report.samples(name, mask_us, "us")
    report.figure(f"{name}_us", masks.mean, "us")
    report.figure(f"{name}_p50_us", masks.median, "us")
    report.figure(f"{name}_p99_us", masks.p99, "us")
    report.figure(f"{name}_compile_ms", summarise(compile_ms).median, "ms")


def _ratio(parts: list[Mapping[str, Result]]) -> float:
    """Returns our mean relative to llguidance's, with equal weight for all texts."""
    ours, theirs = (sum(results[engine].masks.mean for results in parts) for engine in ("aici", "llguidance"))
    return ours / theirs


def _kbnf(report: Report, size: str, texts: list[list[float]]) -> None:
    """Reports both grammars together, and the slowdown from the second quarter of a text to the last."""
    masks = summarise([time for times in texts for time in times])
    name = "grammars.kbnf" if size == _OFFICIAL else f"grammars.kbnf.{size}"
    report.figure(f"{name}.p50_us", masks.median, "us", target=_MAX_KBNF_P50 if size == _OFFICIAL else None)
    report.figure(f"{name}.p99_us", masks.p99, "us", target=_MAX_KBNF_P99 if size == _OFFICIAL else None)
    quarters = [(times[len(times) // 4 : len(times) // 2], times[-len(times) // 4 :]) for times in texts]
    growth = max(summarise(late).median / summarise(early).median for early, late in quarters)
    report.figure(f"{name}.growth_ratio", growth, "ratio")
