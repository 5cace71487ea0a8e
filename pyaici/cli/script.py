"""`aici script`: checks scripts without a model."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from aicirt.contract.modules import script_value, unread_json
from aicirt.system.terminal import show
from pyaici.bundled import build_missing, language_of
from pyaici.cli.command import add_command

_MORE = """
Scripts are controllers in Python (.py) and JavaScript (.js, .mjs). aici run runs them, aici test tests them.
"""
_EXAMPLES = """\
  aici script check my_script.py                prints the errors of a script
"""
_CHECK_MORE = """
Runs the top level of each script in the real runtime, without a model. This finds syntax errors, and errors
at the top level such as an invalid regular expression. It does not run `main`; aici test does. But it finds a
`main` that is not async and, in Python, actions without `await` and names that are not defined anywhere.
Prints FILE:LINE: MESSAGE, or FILE:LINE:COLUMN: MESSAGE where the column is known, at most one line for each
file, and FILE: MESSAGE if the line is not known.
Exit status: 0 no errors, 1 errors.
"""
_CHECK_EXAMPLES = """\
  aici script check my_script.py other.js
  aici script check my_script.py --arg '{"words": 3}'     passes an argument
  aici script check *.py --json                           prints JSON, for editors
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "check scripts without a model"
    parser = add_command(commands, "script", run, summary, more=_MORE, examples=_EXAMPLES)
    actions: Any = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = add_command(
        actions, "check", run, "find errors in scripts", more=_CHECK_MORE, examples=_CHECK_EXAMPLES
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="a script: .py, .js or .mjs")
    check.add_argument(
        "--arg", metavar="TEXT", help="the scripts' argument: a JSON value if TEXT is JSON, else a text"
    )
    check.add_argument("--json", action="store_true", help="print a JSON list of objects")


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each file with an error."""
    from pyaici.scripting.checker import Checker

    value = script_value(arguments.arg)
    if warning := unread_json(arguments.arg):
        show(f"warning: {warning}", file=sys.stderr)
    for language in filter(None, map(language_of, arguments.files)):
        build_missing(language.controller)
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
