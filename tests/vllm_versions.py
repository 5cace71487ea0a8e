"""`scripts/vllm_versions.sh`: tries published versions of vLLM, and prints what is different as a table."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.system.fetch import ENGINES, FetchError, engine_python
from pyaici.engines.vllm.plugin import Sources, differences

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/pyaici/engines/vllm"
_MORE = """
Fetches the wheel of each version, some hundred MB, and keeps its Python in ~/.cache/aici/tests. Compares it
with the names of vLLM that the plugin relies on (pyaici/engines/vllm/versions), and runs the tests of
scheduling with it. They need no kernels and no GPU: a simulated worker takes and gives what vLLM's own worker
does. The status is 1 if a version lacks a name or fails a test.
"""
_EXAMPLES = """
examples:
  scripts/vllm_versions.sh                  the versions that are supported
  scripts/vllm_versions.sh 0.34.0           would a newer version work?
  scripts/vllm_versions.sh --names 0.34.0   compares the names only
"""


@dataclass
class Trial:
    """The findings about a version."""

    version: str
    #: why the version could not be had
    error: str = ""
    #: see `differences`
    names: list[str] = field(default_factory=list)
    #: the last line of pytest, and the tests that failed
    tests: str = "not run"
    failed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.error or self.names or self.failed) and "no tests" not in self.tests


def try_version(version: str, *, run: bool) -> Trial:
    """Compares a version, and runs the tests with it if `run`."""
    trial = Trial(version)
    try:
        folder = engine_python("vllm", version)
    except FetchError as error:
        trial.error = str(error).splitlines()[-1]
        return trial
    trial.names = differences(Sources(folder / "vllm").find)
    if run:
        trial.tests, trial.failed = run_tests(version)
    return trial


def run_tests(version: str) -> tuple[str, list[str]]:
    """Runs the tests of scheduling. Returns the last line of pytest, and a line for each failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-rfE",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        TESTS,
    ]
    variables = {"AICI_TESTED_VLLM": version, "AICI_ANY_VLLM": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    lines = (done.stdout or done.stderr).splitlines() or ["no tests were run"]
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) ", line)]
    if done.returncode and not failed:
        failed = lines[-5:]
    return lines[-1].strip("= "), failed


def report(trials: Sequence[Trial]) -> str:
    """Returns a table with a row for each version, and below it what is different."""
    lines = ["| vLLM | names | tests |", "|---|---|---|"]
    for trial in trials:
        names = f"{len(trial.names)} differ" if trial.names else "all there"
        lines.append(f"| {trial.version} | {trial.error or names} | {trial.tests} |")
    for trial in trials:
        lines += [f"{trial.version}: {line}" for line in (*trial.names, *trial.failed)]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/vllm_versions.sh",
        description="Tries published versions of vLLM, and prints what is different as a table.",
        epilog=_MORE + _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "versions",
        nargs="*",
        default=list(ENGINES["vllm"]),
        metavar="VERSION",
        help=f"default: {' '.join(ENGINES['vllm'])}",
    )
    parser.add_argument("--names", action="store_true", help="compare the names only")
    arguments = parser.parse_args(argv)
    trials = []
    for version in arguments.versions:
        print(f"trying vLLM {version} ...", file=sys.stderr, flush=True)
        trials.append(try_version(version, run=not arguments.names))
    print(report(trials))
    return 0 if all(trial.good for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
