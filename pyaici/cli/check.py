"""`aici check`: reports whether the runtime accepts a module or a script."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, ModuleError
from aicirt.contract.modules import script_value, unread_json
from aicirt.system.terminal import show, show_json
from pyaici.bundled import build_missing, find_controller, language_of
from pyaici.cli.artifacts import controller_here
from pyaici.cli.command import add_command
from pyaici.scripting.script import Problem

if TYPE_CHECKING:
    from aicirt.settings import Limits
    from aicirt.wasm.module.check import ModuleReport
    from pyaici.scripting.checker import Checker

_MORE = """
Goes by the name's ending: a module (.wasm), a script (.py, .js, .mjs), a folder that aici new has made, or a
bundled controller.

For a module, prints whether the runtime accepts it, or all reasons why not, then its imports and exports, and
its limits.

For a script, runs the top level in the real runtime, without a model. This finds syntax errors, and errors at
the top level such as an invalid regular expression. It does not run `main`; aici test does. But it finds a
`main` that is not async and, in Python, actions without `await` and names that are not defined anywhere.
Prints FILE:LINE: MESSAGE, or FILE:LINE:COLUMN: MESSAGE where the column is known, and FILE: MESSAGE if the
line is not known: the first error of each script.

Exit status: 0 accepted, 1 refused.
"""
_EXAMPLES = """\
  aici check my_ctrl.wasm
  aici check my_script.py other.js
  aici check my_script                             the script or module in this folder
  aici check my_script.py --arg '{"words": 3}'     passes an argument
  aici check *.py --json                           prints the errors as JSON, for editors
  aici check regex                                 a bundled controller
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(
        commands, "check", run, "validate controllers and describe them", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument(
        "controllers",
        nargs="+",
        metavar="CONTROLLER",
        help="a .wasm file, a script (.py, .js, .mjs), a folder, or the name of a bundled controller",
    )
    parser.add_argument(
        "--arg", metavar="TEXT", help="the scripts' argument: a JSON value if TEXT is JSON, else a text"
    )
    parser.add_argument(
        "--json", action="store_true", help="print only the errors, as a JSON list of objects"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints a report of each module, and a line for each script."""
    names = [controller_here(name) for name in arguments.controllers]
    languages = {language_of(name) for name in names}
    if arguments.arg is not None and languages == {None}:
        raise AiciError("--arg is for scripts: a module reads its argument when it runs")
    if warning := unread_json(arguments.arg):
        show(f"warning: {warning}", file=sys.stderr)
    for language in filter(None, languages):
        build_missing(language.controller)
    value, found = script_value(arguments.arg), list[Problem]()
    with _checker(any(languages)) as checker:
        for name in names:
            if checker is None or language_of(name) is None:
                found += _check_module(find_controller(name), quiet=arguments.json)
            elif (problem := checker.check(name, value)) is not None:
                found.append(problem)
                if not arguments.json:
                    show(problem, flush=True)
            elif not arguments.json:
                show(f"{name}: accepted", flush=True)
    if arguments.json:
        show_json([asdict(problem) for problem in found])
    return int(bool(found))


@contextlib.contextmanager
def _checker(wanted: bool) -> Iterator[Checker | None]:
    """Yields a checker of scripts, which takes a runtime, if one is wanted."""
    if not wanted:
        yield None
        return
    from pyaici.scripting.checker import Checker

    with Checker() as checker:
        yield checker


def _check_module(path: Path, *, quiet: bool) -> list[Problem]:
    """Returns the reasons to refuse a module; prints a report of it unless `quiet`."""
    return [Problem(str(path), None, None, reason) for reason in _refusals(path, quiet=quiet)]


def print_check(path: Path) -> int:
    """Prints the verdict on a module and its reasons; returns the exit status.

    Raises:
        AiciError: the file cannot be read.
    """
    return int(bool(_refusals(path, brief=True)))


def _refusals(path: Path, *, brief: bool = False, quiet: bool = False) -> list[str]:
    """Returns the reasons to refuse a module; prints a report, with `brief` only the verdict and reasons."""
    from aicirt.settings import Limits  # wasmtime takes time to import

    limits = Limits()
    report = _report(path, limits)
    reasons = report.reasons or _compile(path)
    if quiet:
        return reasons
    verdict = "refused" if reasons else f"accepted, ABI version {report.abi_version}"
    show(f"{path}: {verdict}, {report.size / 1000:.1f} kB")
    for reason in reasons:
        show(f"  refused: {reason}")
    if not brief and (report.exports or report.imports):
        _print_facts(report)
        _print_limits(limits)
    return reasons


def _report(path: Path, limits: Limits) -> ModuleReport:
    from aicirt.wasm.module.check import ModuleReport, check

    try:
        with path.open("rb") as file:
            wasm = file.read(limits.module_bytes + 1)  # a larger file need not be read into memory
            size = max(len(wasm), os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error
    if size > limits.module_bytes:
        return ModuleReport(
            size, [f"the file has {size} bytes, more than the limit of {limits.module_bytes}"]
        )
    return check(wasm, limits)


def _compile(path: Path) -> list[str]:
    """Compiles a module within the limits of uploads; returns the reasons why that fails."""
    from aicirt.modules.compile import compile_in_child

    with tempfile.TemporaryDirectory(prefix="aici-check-") as folder:
        try:
            compile_in_child(path, Path(folder, "compiled"))
        except ModuleError as error:
            return [str(reason) for reason in error.detail.get("reasons", [error.message])]
    return []


def _print_facts(report: ModuleReport) -> None:
    show(f"  memory   {report.initial_memory / 1024:.0f} KiB at the start")
    functions = [export.name for export in report.exports if export.kind == "function"]
    show(f"  exports  {', '.join(functions) or 'nothing'}")
    by_module: dict[str, list[str]] = {}
    for item in report.imports:
        by_module.setdefault(item.module, []).append(item.name)
    for module, names in sorted(by_module.items()):
        show(f"  imports  {module}: {', '.join(sorted(names))}")
    if not report.imports:
        show("  imports  nothing")
    if report.has_pre or report.has_post:
        present = [name for name, has in (("pre", report.has_pre), ("post", report.has_post)) if has]
        show(
            f"  steps    {' and '.join(present)} run between two forward passes, mid beside the forward pass"
        )
    else:
        show("  steps    no pre or post: all its work runs beside the forward pass")


def _print_limits(limits: Limits) -> None:
    times = (
        f"init {limits.init_ms:g} ms, pre {limits.pre_ms:g}, mid {limits.mid_ms:g}, post {limits.post_ms:g}"
    )
    show(f"  limits   memory {limits.memory_bytes >> 20} MiB, file {limits.module_bytes >> 20} MiB")
    show(f"           CPU time: {times}")
