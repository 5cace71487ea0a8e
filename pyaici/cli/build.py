"""`aici build`: builds a folder of sources to a Wasm file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyaici.build import build_controller
from pyaici.cli.check import print_check
from pyaici.cli.command import add_command

_MORE = """
DIR holds the sources of one controller: C or C++20 (every .c and .cpp file), or Zig (main.zig). Nothing else
is needed: the compiler comes with the package ziglang (pip install 'aici[sdk]') and the SDK with this one.
The first build on a machine takes about 20 s more for C, 40 s for C++, to build their libraries.

If DIR is a crate of Rust (Cargo.toml) it is built by cargo, if it is a project in AssemblyScript
(asconfig.json) by asc, which must be on this machine.
"""
_EXAMPLES = """\
  aici build my_ctrl                      my_ctrl.wasm in this folder
  aici build my_ctrl -o out/first.wasm
  aici build                              the sources in this folder
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(commands, "build", run, "compile a controller", more=_MORE, examples=_EXAMPLES)
    parser.add_argument(
        "source", nargs="?", default=Path(), type=Path, metavar="DIR", help="default: this folder"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="default: DIR's name and .wasm, in this folder"
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds the controller, and reports at once if the runtime would refuse it."""
    source: Path = arguments.source
    name = source.stem if source.is_file() else source.resolve().name
    out = arguments.out or Path(f"{name}.wasm")
    built = build_controller(source, out)
    return print_check(built.path, brief=True)
