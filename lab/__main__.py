"""``python -m lab SUITE``: runs a suite, writes its JSON and plot, prints its figures last."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from lab import ROOT
from lab.report import CannotRunError, Report

#: exit status on a machine that lacks what the suite needs
CANNOT_RUN = 3
#: exit status after Ctrl-C, as shells have it
INTERRUPTED = 130


def suites() -> dict[str, str]:
    """Returns the name of each suite and the first line of its docstring."""
    files = sorted(file for file in (ROOT / "lab" / "suites").glob("*.py") if file.stem != "__init__")
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
        add_help=False,
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
        default=ROOT / "lab" / "results",
        help="folder for the results (default: lab/results)",
    )
    common, _ = parser.parse_known_args(argv)
    parser.add_argument("-h", "--help", action="help", help="show this help and that of the suite, and exit")
    try:
        suite = importlib.import_module(f"lab.suites.{common.suite}") if common.suite else None
        if hasattr(suite, "add_options"):
            suite.add_options(parser.add_argument_group(f"options of the suite {common.suite}"))
        arguments = parser.parse_args(argv)
        if suite is None:
            parser.print_help()
            return 0
        own = {name: value for name, value in vars(arguments).items() if not hasattr(common, name)}
        report = Report(arguments.suite, arguments.quick, options=own)
        if own:
            suite.run(report, arguments.out, **own)
        else:
            suite.run(report)
    except (CannotRunError, ModuleNotFoundError) as error:
        print(f"nothing was measured: {error}", file=sys.stderr)
        return CANNOT_RUN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    for path in report.write(arguments.out):
        print(f"wrote {path}", file=sys.stderr)
    for what, why in report.omissions.items():
        print(f"not tried: {what}: {why}", file=sys.stderr)
    for figure in report.figures:
        print(figure.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
