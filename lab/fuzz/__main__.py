"""`scripts/fuzz.sh`: runs a fuzz target and prints the result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.fuzz.native import NoCompiler
from lab.fuzz.run import run
from lab.fuzz.target import TARGETS

_MORE = """
Changes inputs at random, keeps those that reach new code, and looks for one that crashes, hangs, needs too
much memory, or raises an undocumented exception. Readers of grammars are built with clang, libFuzzer, ASan
and UBSan (scripts/clang.sh fetches them). All others are Python, run by atheris. First inputs come from the
tests and the documentation. The corpus is kept in ~/.cache/aici/fuzz/corpus for later runs.
"""
_EXAMPLES = """
examples:
  scripts/fuzz.sh                             lists the targets
  scripts/fuzz.sh regex --seconds 60
  scripts/fuzz.sh module --input FILE         repeats a finding
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz.sh",
        description="Fuzzes a reader of untrusted input.",
        epilog=_MORE + _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), metavar="TARGET")
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="N", help="duration (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the changes (default: random)"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="run the target on this file alone")
    arguments = parser.parse_args()
    if arguments.target is None:
        for name, target in TARGETS.items():
            print(f"{name:12} {target.about}")
        return 0
    try:
        result = run(arguments.target, arguments.seconds, seed=arguments.seed, only=arguments.input)
    except NoCompiler as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    print(result.report())
    return 1 if result.finding else 0


if __name__ == "__main__":
    sys.exit(main())
