"""``python -m bench.campaigns NAME``: runs a campaign in a bounded time and prints its figures."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import secrets
import sys
from dataclasses import asdict
from pathlib import Path

from bench.report import Report, describe_machine

_FOLDER = Path(__file__).resolve().parent


def campaigns() -> dict[str, str]:
    """Name of each campaign and the first line of its docstring: modules with a function `run`."""
    found = {}
    for file in sorted(_FOLDER.glob("*.py")):
        tree = ast.parse(file.read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[file.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 1 if a figure is beyond its target."""
    known = campaigns()
    parser = argparse.ArgumentParser(
        prog="python -m bench.campaigns",
        description="Runs a campaign; the last lines of the output are `name value unit`.",
        epilog="campaigns:\n" + "\n".join(f"  {name:<12} {summary}" for name, summary in known.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("campaign", nargs="?", choices=list(known), metavar="NAME")
    parser.add_argument("--seconds", type=float, help="about how long (default: the full campaign)")
    parser.add_argument("--seed", type=int, help="the same seed does the same again, as far as time allows")
    parser.add_argument("--out", type=Path, help="a folder for NAME.json: figures, seed and machine")
    arguments = parser.parse_args(argv)
    name = arguments.campaign
    if name is None:
        parser.print_help()
        return 0
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    module = importlib.import_module(f"bench.campaigns.{name}")
    seconds = module.SECONDS if arguments.seconds is None else arguments.seconds
    print(f"{name}: {seconds:g} seconds with seed {seed}", file=sys.stderr, flush=True)
    report = Report(name)
    module.run(report, seconds, seed)
    if arguments.out is not None:
        command = f"python -m bench.campaigns {name} --seconds {seconds:g} --seed {seed}"
        found = {
            "campaign": name,
            "command": command,
            "machine": describe_machine(),
            "figures": [asdict(figure) for figure in report.figures],
        }
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    for figure in report.figures:
        print(figure.line())
    missed = [f for f in report.figures if f.target is not None and f.value > f.target]
    for figure in missed:
        print(f"beyond its target {figure.target:g}: {figure.line()}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
