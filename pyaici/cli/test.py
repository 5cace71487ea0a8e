"""`aici test`: tests a controller against recordings or written tests, without a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import show
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from pyaici.testing.playground import Playground

_MORE = """
FILE is a recording of aici run --record, or contains test cases in TOML or JSON. A recording is replayed: the
controller runs in the real runtime, and the samples come from the file. Everything else must be as recorded:
forced and removed tokens, forks, printed lines, variables, and the end. Test cases run with a simulated
model, which tries to write a given text, and a small vocabulary. docs/guide/testing.md explains both. Exit
status: 0 all as expected, 1 something differs.

A replay needs the vocabulary of the model: that of the default model if it has been fetched, or that of
--model. Otherwise it uses only the recorded tokens, and prints a note.
"""
_EXAMPLES = """\
  aici test my_script.py --transcript tests.toml
  aici run my_script.py --prompt "Tell me a story" --record story.json
  aici test my_script.py --transcript story.json
  aici test my_ctrl.wasm --transcript story.json --model ~/models/my-model --masks
  aici test my_script.py --transcript tests.toml --update      rewrites the expectations
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "test a controller against transcripts, without a model"
    parser = add_command(commands, "test", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument(
        "controller", metavar="CONTROLLER", help="a script, a .wasm file, or the name of a bundled controller"
    )
    parser.add_argument(
        "--transcript", type=Path, nargs="+", required=True, metavar="FILE", help="recordings and test cases"
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


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each recording and each case, and the differences; returns 1 if one fails."""
    from pyaici.testing.playground import Playground

    if arguments.masks and arguments.recorded_tokens:
        raise AiciError("--masks needs the model's vocabulary: leave --recorded-tokens out")
    playground: Playground | None = None
    failed = 0
    try:
        for path in arguments.transcript:
            if _is_recording(path):
                failed += _replay(path, arguments)
            else:
                playground = playground or Playground()
                failed += _run_cases(playground, path, arguments)
    finally:
        if playground is not None:
            playground.close()
    return int(failed > 0)


def _is_recording(path: Path) -> bool:
    from pyaici.recording.recording import MARK
    from pyaici.testing.cases import read_table

    return path.suffix != ".toml" and MARK in read_table(path)


def _replay(path: Path, arguments: argparse.Namespace) -> int:
    """Replays a recording; returns the number of failures, 0 or 1."""
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


def _run_cases(playground: Playground, path: Path, arguments: argparse.Namespace) -> int:
    """Runs the cases of a file; returns the number of failures."""
    from pyaici.testing.cases import read_cases, run_case, update_cases

    results = [run_case(playground, arguments.controller, case) for case in read_cases(path)]
    if arguments.update:
        updated = update_cases(path, results)
        show(f"{path}: {'updated' if updated else 'nothing to update'}")
        return 0
    for result in results:
        show(f"{path}: {result.case.name}: {'ok' if result.passed else 'failed'}")
        for line in [*result.warnings, *result.differences]:
            show(f"  {line}")
    failed = sum(not result.passed for result in results)
    show(f"{path}: {len(results)} case{'s' * (len(results) != 1)}, {failed} failed")
    return failed
