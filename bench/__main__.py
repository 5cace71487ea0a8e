"""``python -m bench SUITE``: runs a suite, writes its JSON and plot, prints its figures last."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from bench.report import ROOT, CannotRunError, Report

#: exit status on a machine that lacks what the suite needs
CANNOT_RUN = 3


def suites() -> dict[str, str]:
    """Returns the name of each suite and the first line of its docstring."""
    files = sorted(file for file in (ROOT / "bench" / "suites").glob("*.py") if file.stem != "__init__")
    # parses the files instead of importing them: a suite may load torch
    return {
        file.stem: (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n")[0] for file in files
    }


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    known = suites()
    parser = argparse.ArgumentParser(
        prog="scripts/bench.sh",
        description="Runs a suite of measurements. The last lines of the output are `name value unit`. Exits "
        f"with status {CANNOT_RUN} on a machine that lacks what the suite needs, such as a GPU.",
        epilog="suites:\n" + "\n".join(f"  {name:<12} {summary}" for name, summary in known.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="?", choices=list(known), metavar="SUITE")
    parser.add_argument(
        "--quick", action="store_true", help="run a short form that only shows that the suite works"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "bench" / "results",
        help="folder for the results (default: bench/results)",
    )
    arguments = parser.parse_args(argv)
    if arguments.suite is None:
        parser.print_help()
        return 0
    report = Report(arguments.suite, arguments.quick)
    try:
        importlib.import_module(f"bench.suites.{arguments.suite}").run(report)
    except (CannotRunError, ModuleNotFoundError) as error:
        print(f"nothing was measured: {error}", file=sys.stderr)
        return CANNOT_RUN
    for path in report.write(arguments.out):
        print(f"wrote {path}", file=sys.stderr)
    for what, why in report.omissions.items():
        print(f"not tried: {what}: {why}", file=sys.stderr)
    for figure in report.figures:
        print(figure.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
