"""`aici check`: reports whether the runtime accepts a Wasm file."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, ModuleError
from aicirt.system.terminal import show
from pyaici.bundled import find_controller
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from aicirt.settings import Limits
    from aicirt.wasm.module.check import ModuleReport

_MORE = """
Prints whether the runtime accepts the controller, or all reasons why not. Then prints the imports and exports
of the controller, and the limits for it. Exit status: 0 accepted, 1 refused.
"""
_EXAMPLES = """\
  aici check my_ctrl.wasm
  aici check regex                        a bundled controller
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(
        commands, "check", run, "validate a controller and describe it", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument(
        "file", metavar="CONTROLLER", help="a .wasm file, or the name of a bundled controller"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the whole report."""
    return print_check(find_controller(arguments.file))


def print_check(path: Path, *, brief: bool = False) -> int:
    """Prints a report of the file, with `brief` only the verdict and its reasons; returns the exit status.

    Raises:
        AiciError: the file cannot be read.
    """
    from aicirt.settings import Limits  # wasmtime takes time to import

    limits = Limits()
    report = _report(path, limits)
    reasons = report.reasons or _compile(path)
    verdict = "refused" if reasons else f"accepted, ABI version {report.abi_version}"
    show(f"{path}: {verdict}, {report.size / 1000:.1f} kB")
    for reason in reasons:
        show(f"  refused: {reason}")
    if not brief and (report.exports or report.imports):
        _print_facts(report)
        _print_limits(limits)
    return 1 if reasons else 0


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
    from aicirt.modules import compile_in_child

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
