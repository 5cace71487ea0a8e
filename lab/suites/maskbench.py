"""MaskBench: JSON schemas with valid and invalid texts, compared with llguidance and xgrammar."""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aicirt.system.resources import usable_cpus
from lab.contestants.coverage import cover_all, report_coverage
from lab.contestants.mask_figures import FUEL, MaskFigures
from lab.contestants.schema_engine import ENGINES, fuel_engine, schema_engine
from lab.contestants.schema_trial import Trial, text_maker
from lab.inputs.maskbench import BrokenFile, choose, read_case, write_own
from lab.measurement.child import Child
from lab.measurement.resumable import ResumableResults
from lab.report import CannotRunError, Figure, Report, describe_machine
from pyaici.bundled import find_controller

_SIZE, _QUICK_SIZE = "131k", "32k"
#: every n-th published schema of PyPI packages beside our own
_EVERY = 20
_QUICK_LIMIT = 3


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Adds the suite's options to those of all suites."""
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with schemas in MaskBench's layout: maskbench/data of guidance-ai/jsonschemabench "
        "(default: own schemas, and some of PyPI packages)",
    )
    parser.add_argument("--limit", type=_count, help="measure only so many schemas, chosen by --seed")
    parser.add_argument(
        "--all",
        action="store_true",
        default=None,
        help="coverage instead of time: our engine alone, with every text of every schema",
    )
    parser.add_argument("--jobs", type=_count, help="processes for --all (default: the processors)")
    parser.add_argument("--seed", type=int, help="decides the order of schemas (default: 0)")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of schemas: 1 or more is expected")
    return int(text)


def run(
    report: Report,
    folder: Path,
    *,
    data: Path | None = None,
    limit: int | None = None,
    seed: int | None = None,
    all: bool | None = None,
    jobs: int | None = None,
) -> None:
    """Measures each engine in a process of its own; they take turns with each request.

    Times are those of the thread (CPU); times of the wall clock are in the JSON, too. A schema is compiled
    once. Then ten requests follow, each with another text as far as there are any, and our engine does the
    builder's work between them. With `all`, only our engine is covered: lab/contestants/coverage.py.

    Writes a line for each schema to maskbench.jsonl in `folder`, or coverage.jsonl. A run that was
    interrupted goes on when the same command is repeated, or one with another limit. Raises CannotRunError if
    there are no schemas.
    """
    with ExitStack() as stack:
        if data is None:
            own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            write_own(own, 0 if report.quick else _EVERY)
        if report.quick:
            limit = min(limit or _QUICK_LIMIT, _QUICK_LIMIT)
        try:
            paths = choose(data or own, limit, seed or 0)
        except FileNotFoundError as error:
            raise CannotRunError(str(error)) from error
        size = _QUICK_SIZE if report.quick else _SIZE
        about = _about(str(data.resolve()) if data else "own schemas", seed or 0, size)
        kind = "coverage" if all else "maskbench"
        results = ResumableResults(folder / f"{kind}.part.jsonl", about)
        names = {path.stem for path in paths}
        left = [path for path in paths if path.stem not in results.names]
        found = (its for its in results if its["name"] in names)
        if all:
            made = cover_all(left, size, jobs or max(int(usable_cpus()), 1))
            broken = _collect(made, len(left), len(paths), results)
            report_coverage(report, found)
        else:
            children = {name: Child(schema_engine, name, size) for name in ENGINES}
            children |= {FUEL: Child(fuel_engine, size), "texts": Child(text_maker)}
            for child in children.values():
                stack.enter_context(closing(child))
            trial = Trial(children, children.pop("texts"))
            broken = _collect(_measured(trial, left, paths), len(left), len(paths), results)
            MaskFigures(ENGINES, found).report(report)
    report.details["broken_files"] = broken
    report.figures.insert(0, Figure("maskbench.broken_files", len(broken), "files"))
    results.path.rename(folder / f"{kind}.jsonl")


def _measured(
    trial: Trial, left: Sequence[Path], paths: Sequence[Path]
) -> Iterator[dict[str, Any] | BrokenFile]:
    """Yields the results of the schemas that are left, of all."""
    for path in left:
        try:
            yield trial.run(read_case(path), paths.index(path))
        except BrokenFile as error:
            yield error


def _collect(
    found: Iterator[dict[str, Any] | BrokenFile], left: int, count: int, results: ResumableResults
) -> list[str]:
    """Writes results as they come. Returns the problems of broken files."""
    broken = []
    columns = (TextColumn("schemas"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("schemas", total=count, completed=count - left)
        try:
            for its in found:
                if isinstance(its, BrokenFile):
                    broken.append(str(its))
                    print(f"skipped: {its}", file=sys.stderr)
                else:
                    results.add(its)
                progress.advance(bar)
        except KeyboardInterrupt:
            done = f"{int(progress.tasks[0].completed)} of {count} schemas are measured"
            print(f"{done}; the same command goes on from {results.path}", file=sys.stderr)
            raise
    return broken


def _about(data: str, seed: int, size: str) -> dict[str, Any]:
    """Describes what a result depends on: a run goes on only from results of the same kind."""
    packages = describe_machine()["packages"]
    return {
        "data": data,
        "seed": seed,
        "vocabulary": size,
        "json_schema": hashlib.sha256(find_controller("json_schema").read_bytes()).hexdigest(),
        **{name: packages.get(name) for name in ("wasmtime", *ENGINES[1:])},
    }
