"""`aici test`: tests a controller against recordings or written tests, without a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import show, show_json
from pyaici.cli.artifacts import controller_here
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from pyaici.testing.playground import Playground

_MORE = """
FILE is a recording of aici run --record, or contains test cases in TOML or JSON; by default, it is tests.toml
beside the controller. A recording is replayed: the
controller runs in the real runtime, and the samples come from the file. Everything else must be as recorded:
forced and removed tokens, forks, printed lines, variables, and the end. Test cases run with a simulated
model, which tries to write a given text, and a small vocabulary. docs/guide/building.md explains both. Exit
status: 0 all as expected, 1 something differs.

A replay needs the vocabulary of the model: that of the default model if it has been fetched, or that of
--model. Otherwise it uses only the recorded tokens, and prints a note.
"""
_EXAMPLES = """\
  aici test my_script                                          my_script/main.py with my_script/tests.toml
  aici test my_script.py --transcript tests.toml more.toml
  aici run my_script.py --prompt "Tell me a story" --record story.json
  aici test my_script.py --transcript story.json
  aici test my_ctrl.wasm --transcript story.json --model ~/models/my-model --masks
  aici test my_script --update                                 rewrites the expectations
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "test a controller against transcripts, without a model"
    parser = add_command(commands, "test", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument(
        "controller",
        metavar="CONTROLLER",
        help="a script, a .wasm file, a folder with one of them, or the name of a bundled controller",
    )
    parser.add_argument(
        "--transcript",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="recordings and test cases (default: tests.toml beside the controller)",
    )
    parser.add_argument(
        "--update", action="store_true", help="replace the expectations in FILE by the actual results"
    )
    parser.add_argument(
        "--model", type=Path, metavar="PATH", help="folder with the tokenizer of the recorded model"
    )
    parser.add_argument("--masks", action="store_true", help="also compare which tokens a recording allows")
    parser.add_argument(
        "--recorded-tokens",
        action="store_true",
        help="use only the tokens that occur in the recording as vocabulary",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON list of the results, one for each case and recording",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each recording and each case, and the differences; returns 1 if one fails."""
    from pyaici.testing.playground import Playground

    if arguments.masks and arguments.recorded_tokens:
        raise AiciError("--masks needs the model's vocabulary: leave --recorded-tokens out")
    if arguments.json and arguments.update:
        raise AiciError("--update has no results to print as JSON: leave --json out")
    arguments.controller = controller_here(arguments.controller)
    playground: Playground | None = None
    failed, found = 0, list[dict[str, Any]]()
    try:
        for path in arguments.transcript or [_tests_beside(arguments.controller)]:
            if _is_recording(path):
                failed += _replay(path, arguments, found)
            else:
                playground = playground or Playground()
                failed += _run_cases(playground, path, arguments, found)
    finally:
        if playground is not None:
            playground.close()
    if arguments.json:
        show_json(found)
    return int(failed > 0)


def _tests_beside(controller: str) -> Path:
    """Returns tests.toml in the controller's folder. Raises AiciError if there is none."""
    path = Path(controller).parent / "tests.toml"
    if not path.is_file():
        raise AiciError(
            f"there are no tests: no file {path}; name recordings or test cases with --transcript"
        )
    return path


def _is_recording(path: Path) -> bool:
    from pyaici.recording.recording import MARK
    from pyaici.testing.cases import read_table

    return path.suffix != ".toml" and MARK in read_table(path)


def _replay(path: Path, arguments: argparse.Namespace, found: list[dict[str, Any]]) -> int:
    """Replays a recording; returns the number of failures, 0 or 1. Adds its result to `found`."""
    from pyaici.recording.recording import read_recording, write_recording
    from pyaici.testing.replay import replay

    done = replay(
        read_recording(path),
        arguments.controller,
        model=arguments.model,
        masks=arguments.masks,
        recorded_only=arguments.recorded_tokens,
    )
    if arguments.masks and not done.vocabulary.exact:
        raise AiciError("--masks needs the model's vocabulary: give the model's folder with --model PATH")
    found.append(
        {
            "file": str(path),
            "case": None,
            "passed": done.passed,
            "differences": [*done.problems, *done.differences],
            "vocabulary": done.vocabulary.what,
        }
    )
    if arguments.json:
        return int(not done.passed)
    show(f"{path}: vocabulary: {done.vocabulary.what}")
    if done.passed:
        show(f"{path}: ok")
        return 0
    if arguments.update and not done.problems:
        if not done.vocabulary.exact:
            raise AiciError(f"to update {path}, give the model's folder with --model PATH")
        write_recording(done.now, path)
        show(f"{path}: updated")
    else:
        show(f"{path}: failed")
    for line in [*done.problems, *done.differences]:
        show(f"  {line}")
    if arguments.update and done.problems:
        show(
            f"  the controller no longer allows the recorded samples: record {path} again (aici run --record)"
        )
    return int(bool(done.problems) or not arguments.update)


def _run_cases(
    playground: Playground, path: Path, arguments: argparse.Namespace, found: list[dict[str, Any]]
) -> int:
    """Runs the cases of a file; returns the number of failures. Adds their results to `found`."""
    from pyaici.testing.cases import read_cases, run_case, update_cases

    results = [run_case(playground, arguments.controller, case) for case in read_cases(path)]
    if arguments.update:
        updated = update_cases(path, results)
        show(f"{path}: {'updated' if updated else 'nothing to update'}")
        return 0
    failed = sum(not result.passed for result in results)
    if arguments.json:
        found += [
            {
                "file": str(path),
                "case": result.case.name,
                "passed": result.passed,
                "differences": result.differences,
                "warnings": result.warnings,
            }
            for result in results
        ]
        return failed
    for result in results:
        show(f"{path}: {result.case.name}: {'ok' if result.passed else 'failed'}")
        for line in [*result.warnings, *result.differences]:
            show(f"  {line}")
    show(f"{path}: {len(results)} case{'s' * (len(results) != 1)}, {failed} failed")
    return failed
