"""``python -m lab.campaigns NAME``: runs a campaign, writes its JSON, prints its figures last."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from lab import ROOT
from lab.campaigns.campaign import Campaign
from lab.report import Report


def campaigns() -> dict[str, str]:
    """Returns the name of each campaign and the first line of its docstring."""
    found = {}
    for file in sorted((ROOT / "lab" / "campaigns").glob("*.py")):
        tree = ast.parse(file.read_text())
        if any(isinstance(part, ast.FunctionDef) and part.name == "run" for part in tree.body):
            found[file.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 1 if anything failed."""
    known = campaigns()
    parser = argparse.ArgumentParser(
        prog="scripts/campaign.sh",
        description="Tests a promise of the runtime many times. The last lines of the output are "
        "`name value unit`. Writes each failed case to a file and prints the file's path.",
        epilog="campaigns:\n" + "\n".join(f"  {name:<12} {summary}" for name, summary in known.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("campaign", nargs="?", choices=list(known), metavar="CAMPAIGN")
    parser.add_argument("--count", type=int, help="end after this many cases")
    parser.add_argument("--seconds", type=float, help="end after this many seconds")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases (default: 1)")
    parser.add_argument(
        "--only", type=int, metavar="CASE", help="run one case alone, to reproduce its failure"
    )
    parser.add_argument(
        "--engine", action="append", default=[], help="exactness: check only this engine (can be repeated)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="exactness: number of processes (default: 1)")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "lab" / "results",
        help="folder for the results (default: lab/results)",
    )
    arguments = parser.parse_args(argv)
    if arguments.campaign is None:
        parser.print_help()
        return 0
    module = importlib.import_module(f"lab.campaigns.{arguments.campaign}")
    engines = getattr(module, "ENGINES", ())
    if not engines and (arguments.engine or arguments.jobs != 1):
        parser.error(f"--engine and --jobs are for the campaign exactness, not for {arguments.campaign}")
    if unknown := sorted(set(arguments.engine) - set(engines)):
        parser.error(f"there is no engine {unknown[0]}: choose from {', '.join(engines)}")
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    words = [arguments.campaign, f"--seed {arguments.seed}"]
    words += [f"--engine {name}" for name in arguments.engine]
    words += [f"--{name} {value:g}" for name in ("count", "seconds") if (value := getattr(arguments, name))]
    report = Report(arguments.campaign, command=f"./scripts/campaign.sh {' '.join(words)}")
    folder = arguments.out / "failures"
    campaign = Campaign(
        report,
        arguments.seed,
        arguments.count,
        arguments.seconds,
        folder,
        arguments.only,
        tuple(arguments.engine),
        arguments.jobs,
    )
    module.run(campaign)
    campaign.figure("failures", campaign.failures, "cases", target=0)
    campaign.figure("seconds", campaign.elapsed, "s")
    print(f"wrote {report.write_data(arguments.out)}", file=sys.stderr)
    for figure in report.figures:
        print(figure.line())
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
