"""Compares the masks of engines for JSON schemas, token by token: `python -m lab.exactness --data FOLDER`."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.exactness.followers import MAKERS, follower, maker
from lab.exactness.kit import NARROW, OPEN, ORDER, SPELLING, WIDE, Comparison, Score
from lab.inputs.maskbench import BrokenFile, choose, read_case, write_own
from lab.measurement.child import Child

#: valid texts of each schema
_TEXTS = 3
#: tokens of each kind of flaw
_WHICH = 20
#: packages whose versions the results name
_PACKAGES = ("pyaici", "llguidance", "xgrammar", "outlines-core", "jsonschema")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.exactness",
        description="Walks engines along valid texts of JSON schemas and compares which tokens they allow. "
        "Where they differ, one that allows the token writes texts that begin so, and jsonschema judges "
        "them: a valid text proves that the others forbid too much, an invalid one that this engine allows "
        "too much.",
        epilog="An engine of your own: --engine package.module:function. The function gets an Arena (its "
        "vocabulary is arena.natives.vocabulary) and a schema, and returns a Contestant (lab/contestants).",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of files in MaskBench's layout, such as maskbench/data of guidance-ai/jsonschemabench "
        "(default: schemas of our own)",
    )
    parser.add_argument(
        "--engine",
        action="append",
        metavar="NAME",
        help=f"{', '.join(MAKERS)}, or module:function; repeat it (default: {', '.join(MAKERS)})",
    )
    parser.add_argument("--limit", type=int, help="so many schemas, chosen by --seed (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="decides schemas, tokens and texts (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and witnesses to a file")
    wanted = parser.parse_args(argv)
    wanted.engine = list(dict.fromkeys(wanted.engine or MAKERS))
    if len(wanted.engine) < 2:
        wanted.engine.append("aici" if wanted.engine != ["aici"] else "llguidance")
    for name in wanted.engine:
        try:
            maker(name)
        except ValueError as error:
            parser.error(str(error))
    return wanted


def _figures(score: Score) -> dict[str, Any]:
    kinds = (NARROW, WIDE, ORDER, SPELLING)
    return {
        "schemas": score.schemas,
        "refused": len(score.refused),
        "failed": len(score.failed),
        "masks": score.masks,
        "tokens_different": score.different,
        "tokens_judged": score.judged,
        **{kind: score.tokens.get(kind, Counter()).total() for kind in (*kinds, OPEN)},
        **{f"schemas_{kind}": sum(found == kind for found, _ in score.flaws) for kind in kinds},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main(argv: list[str] | None = None) -> int:
    """Prints a table, and writes the results. Returns the exit status."""
    wanted = _arguments(argv)
    with ExitStack() as stack:
        folder = wanted.data
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            write_own(folder, 0)
        try:
            paths = choose(folder, wanted.limit, wanted.seed)
        except FileNotFoundError as error:
            print(f"lab.exactness: {error}", file=sys.stderr)
            return 1
        engines = {name: stack.enter_context(closing(Child(follower, name))) for name in wanted.engine}
        comparison = Comparison(engines, wanted.seed)
        errors = Console(stderr=True)
        for path in track(paths, "schemas", console=errors):
            try:
                case = read_case(path)
            except BrokenFile as error:
                errors.print(f"{error}", markup=False)
                continue
            comparison.schema(case.name, case.schema, case.valid[:_TEXTS])
    figures = {name: _figures(score) for name, score in comparison.scores.items()}
    table = Table("", *figures)
    for name in next(iter(figures.values())):
        table.add_row(name, *(f"{its[name]:,}" for its in figures.values()))
    Console().print(table)
    if wanted.json is not None:
        details = {
            name: {
                "refused": score.refused,
                "failed": score.failed,
                "tokens": {kind: dict(found.most_common(_WHICH)) for kind, found in score.tokens.items()},
                "flaws": [flaw._asdict() for flaw in score.flaws.values()],
            }
            for name, score in comparison.scores.items()
        }
        versions = {package: _version(package) for package in _PACKAGES}
        results = {"seed": wanted.seed, "versions": versions, "engines": figures, "details": details}
        wanted.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
