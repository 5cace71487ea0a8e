"""`aici script`: checks scripts without a model."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from aicirt.contract.modules import script_value
from aicirt.system.terminal import show
from pyaici.cli.command import add_command

_MORE = """
Scripts are controllers in Python (.py) and JavaScript (.js, .mjs); aici run runs them, aici test tests them.
"""
_EXAMPLES = """\
  aici script check my_script.py                errors that can be found without a model
"""
_CHECK_MORE = """
Runs the top level of each script in the real runtime, without a model: errors of its syntax and of what it
does there are found, such as a regular expression that is none; what `main` does is not run, which aici test
does. Prints FILE:LINE: MESSAGE, or with a column FILE:LINE:COLUMN: MESSAGE, one line for each file at most.
Exit status: 0 no error, 1 errors.
"""
_CHECK_EXAMPLES = """\
  aici script check my_script.py other.js
  aici script check my_script.py --arg '{"words": 3}'     for a top level that looks at its argument
  aici script check *.py --json                           for editors: a list of objects
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "look for errors in scripts, without a model"
    parser = add_command(commands, "script", run, summary, more=_MORE, examples=_EXAMPLES)
    actions: Any = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = add_command(
        actions, "check", run, "find errors of scripts", more=_CHECK_MORE, examples=_CHECK_EXAMPLES
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="a script: .py, .js or .mjs")
    check.add_argument(
        "--arg", metavar="TEXT", help="the scripts' argument: a value of JSON if TEXT is one, else a text"
    )
    check.add_argument("--json", action="store_true", help="print a list of objects")


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each file with an error."""
    from pyaici.scripting.checker import Checker

    value = script_value(arguments.arg)
    problems = []
    with Checker() as checker:
        for file in arguments.files:
            problem = checker.check(file, value)
            if problem is not None:
                problems.append(problem)
                if not arguments.json:
                    show(problem, flush=True)
    if arguments.json:
        show(json.dumps([asdict(problem) for problem in problems], indent=2, ensure_ascii=False))
    return int(bool(problems))
