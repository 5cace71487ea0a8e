"""`aici serve` and `aici runtime`: the long-running programs, which read their arguments themselves."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from aicirt.contract.errors import AiciError
from pyaici.toolchain.sdk import install_command

#: packages of the extra `server`
_PACKAGES = ("fastapi", "uvicorn", "sse_starlette", "prometheus_client", "pydantic_settings")


def add(commands: Any) -> None:
    """Adds the commands; the programs parse the rest of the line (`takes_rest`)."""
    for name, run, summary in (
        ("serve", serve, "serve a model and its controllers over HTTP"),
        ("runtime", runtime, "run a daemon (aicirt) in the foreground"),
    ):
        parser = commands.add_parser(name, help=summary, add_help=False)
        parser.set_defaults(run=run, takes_rest=True)


def add_options(commands: Any) -> None:
    """Adds the options of the programs, as far as they are installed, to their commands."""
    from aicirt.__main__ import make_parser
    from pyaici.tools.settings import add_options as add_tool_options

    programs = {"runtime": make_parser("aici runtime")}
    add_tool_options(programs["runtime"])
    if _missing() == []:
        from pyaici.server.serve import parser

        programs["serve"] = parser()
    for name, program in programs.items():
        for action in program._actions:
            commands.choices[name]._add_action(action)


def _missing() -> list[str]:
    """Returns the packages of the extra `server` that are missing."""
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def serve(arguments: argparse.Namespace) -> int:
    """Runs the HTTP server until a signal stops it."""
    if missing := _missing():
        cure = install_command("llama,server")
        raise AiciError(
            f"aici serve needs the server: {cure} (missing: {', '.join(missing)}); "
            "docs/server_reference.md lists its options"
        )
    from pyaici.server.serve import main

    return main(arguments.rest)


def runtime(arguments: argparse.Namespace) -> int:
    """Runs the daemon until a signal stops it."""
    from aicirt.__main__ import main  # wasmtime takes time to import
    from pyaici.tools.process import beside
    from pyaici.tools.settings import add_options

    return main(arguments.rest, "aici runtime", add_options, beside)
