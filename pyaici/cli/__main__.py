"""`aici`: the entry point of the command line."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import BriefParser, exit_process, refuse_rest, run_command
from pyaici.cli import (
    artifacts,
    build,
    check,
    doctor,
    grammar,
    modules,
    new,
    run,
    services,
    test,
    users,
    watch,
)
from pyaici.cli import eval as eval_command
from pyaici.toolchain import BuildError

_DESCRIPTION = (
    "Write, build, check and run AICI controllers: WebAssembly programs that steer a language model."
)
_EPILOG = """\
write your own controller in four steps:
  aici new my_ctrl                                     creates a folder with a working program
  aici build my_ctrl                                   writes my_ctrl.wasm
  aici check my_ctrl.wasm                              validates it
  aici run my_ctrl.wasm "Tell me a story"              generates text under its control

or in Python or JavaScript, without a compiler:
  aici new --python my_script                          creates a folder with a working script and its tests
  aici test my_script                                  runs them, without a model
  aici run my_script "Tell me a story"

`aici COMMAND --help` explains each command with examples.
"""


def parser(*, completing: bool = False) -> argparse.ArgumentParser:
    """Returns the parser of the whole command line.

    `completing`: also with the options of the programs that read their arguments themselves, for a shell.
    """
    whole = BriefParser(
        prog="aici",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"aici {_version()}")
    commands: Any = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        new,
        build,
        check,
        run,
        test,
        eval_command,
        services,
        users,
        grammar,
        modules,
        artifacts,
        watch,
        doctor,
    ):
        module.add(commands)
    if completing:
        services.add_options(commands)
    return whole


def _version() -> str:
    try:
        return importlib.metadata.version("pyaici")
    except importlib.metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns its exit status.

    The status is 0, 1 (error), 2 (no command), 130 (Ctrl-C) or 143 (SIGTERM).
    An invalid command line ends the program with status 2.
    """
    whole = parser()
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        whole.print_help(sys.stderr)
        return 2
    arguments, rest = whole.parse_known_args(argv)
    if rest and not getattr(arguments, "takes_rest", False):
        refuse_rest(arguments.parser, rest)
    arguments.rest = rest

    def run_subcommand() -> int:
        try:
            status: int = arguments.run(arguments)
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            # the reader (head, less) has exited; Python would fail again when it flushes stdout at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1

    return run_command("aici", run_subcommand, (AiciError, BuildError))


if __name__ == "__main__":
    exit_process(main())
