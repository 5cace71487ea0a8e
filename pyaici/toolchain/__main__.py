"""``python -m pyaici.toolchain``: builds the controllers of the source tree, or one folder or some files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .controller import PROBE_NAME, Built, build_controller, iter_build, remove_stale
from .sdist import FOLDER_VARIABLE
from .sdk import BuildError
from .zig import Toolchain

_DEFAULT_OUT = Path(__file__).resolve().parent.parent / "_wasm"
_SOURCES = f"""The interpreters that run scripts are compiled from sources that pip fetches from the package
index, once. Without network, put these files into a folder and set {FOLDER_VARIABLE}=DIR; the error message
names the files. If they are missing, everything else is built.
"""


def report(built: Built) -> str:
    """Returns a line with the module's name, its size in kB (1000 bytes) and the time of the build."""
    how = f"{built.seconds:.1f} s" if built.changed else "unchanged"
    if built.name == PROBE_NAME:
        return f"size.three_layers_kb {built.size / 1000:.1f} kB"
    return f"{built.name:<24} {built.size / 1000:>8.1f} kB  {how}"


def main(argv: list[str] | None = None) -> int:
    """Builds, and returns the exit status: 0, or 1 if a controller cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m pyaici.toolchain", description=__doc__, epilog=_SOURCES)
    parser.add_argument(
        "sources",
        nargs="*",
        type=Path,
        help="the folder or files of one controller (default: build all of controllers/)",
    )
    parser.add_argument(
        "-o", "--out", type=Path, help="write to this .wasm file, or to this folder when all are built"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not list unchanged controllers")
    arguments = parser.parse_args(argv)
    try:
        if arguments.sources:
            sources = arguments.sources
            out = arguments.out or Path(f"{sources[0].resolve().stem}.wasm")
            print(report(build_controller(sources[0] if len(sources) == 1 else sources, out)))
        else:
            modules = []
            for built in iter_build(arguments.out or _DEFAULT_OUT, tools=Toolchain()):
                modules.append(built)
                if built.changed or not arguments.quiet:
                    print(report(built), flush=True)
            if arguments.out is None:
                remove_stale(_DEFAULT_OUT, modules)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
