"""`aici build`: builds a folder of sources, or one source file, to a Wasm file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyaici.cli.check import print_check
from pyaici.cli.command import add_command
from pyaici.toolchain import build_controller

_MORE = """
SOURCE is a folder with the sources of one controller: C or C++20 (all .c and .cpp files), or Zig (main.zig).
Or it is a controller in one file, such as once.cpp. The compiler is in the package ziglang (extra
sdk), the SDK in this one. The first build on a machine also builds the libraries, which takes about
20 s for C and 40 s for C++.

A Rust crate (Cargo.toml) is built with cargo, and an AssemblyScript project (asconfig.json) with asc. Install
these compilers yourself.
"""
_EXAMPLES = """\
  aici build my_ctrl                      writes my_ctrl.wasm to the current folder
  aici build my_ctrl -o out/first.wasm
  aici build once.cpp                     builds one file, and writes once.wasm
  aici build                              builds the sources in the current folder
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(commands, "build", run, "compile a controller", more=_MORE, examples=_EXAMPLES)
    parser.add_argument(
        "source",
        nargs="?",
        default=Path(),
        type=Path,
        metavar="SOURCE",
        help="folder with the sources, or one source file (default: the current folder)",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="the file to write (default: SOURCE's name with .wasm, in the current folder)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds the controller, and reports at once if the runtime would refuse it."""
    source: Path = arguments.source
    name = source.stem if source.is_file() else source.resolve().name
    out = arguments.out or Path(f"{name}.wasm")
    built = build_controller(source, out)
    return print_check(built.path)
