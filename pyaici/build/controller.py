"""Builds one controller, or takes it from the cache."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import assemblyscript, cargo, flags
from .errors import BuildError
from .interpreters import InterpreterBase, is_interpreter
from .native import NativeBuild
from .sdk import CXX_SUFFIXES, Sdk, find_sdk
from .toolchain import Toolchain

SOURCE_SUFFIXES = (".c", *CXX_SUFFIXES, ".zig")


@dataclass(frozen=True)
class Built:
    """A built module: `size` in bytes, `seconds` of wall time, `changed` if `path` had other bytes before."""

    name: str
    path: Path
    size: int
    seconds: float
    changed: bool


def build_controller(
    source: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    sdk: Sdk | None = None,
    tools: Toolchain | None = None,
) -> Built:
    """Builds a controller from a folder, a file or a list of files into the Wasm file `out`.

    The files in a folder decide how it is built:

    - ``Cargo.toml``: a Rust crate, which cargo builds.
    - ``asconfig.json``: a project in AssemblyScript, which asc builds.
    - ``interpreter.toml``: the glue of an interpreter, whose sources are fetched.
    - Otherwise, every source directly in the folder is compiled.

    C and C++ sources can include ``aici.h``. If there is a C++ source, the parts of the SDK's library that it
    needs are compiled and linked, and the linker drops unused code. An exported function that the SDK defines
    is linked only if the module needs another name of the same source. Zig sources are ``main.zig`` (or the
    only file) and its imports; ``@import("aici")`` is the SDK's module.

    Raises:
        BuildError: there is no source, or the compiler rejects it (the error contains its messages).
        MissingToolchain: cargo, asc or Node.js is needed and missing.
        MissingSources: the sources of the interpreter cannot be fetched.
    """
    start = time.monotonic()
    out = Path(out)
    sdk = sdk or find_sdk()
    if isinstance(source, str | Path) and cargo.is_crate(Path(source)):
        module = cargo.build_crate(Path(source))
    elif isinstance(source, str | Path) and assemblyscript.is_assemblyscript(Path(source)):
        module = assemblyscript.build_assemblyscript(Path(source), sdk)
    elif isinstance(source, str | Path) and is_interpreter(Path(source)):
        module = _build_interpreter(Path(source).resolve(), sdk, tools or Toolchain())
    else:
        module = _build_sources(_sources(source), sdk, tools or Toolchain())
    changed = _place(module, out)
    return Built(out.stem, out, out.stat().st_size, time.monotonic() - start, changed)


def _build_sources(sources: list[Path], sdk: Sdk, tools: Toolchain) -> bytes:
    if sources[0].suffix == ".zig":
        return _build_zig(sources, sdk, tools)
    build = NativeBuild(sdk, tools, sources)
    return (build.find() or build.make()).read_bytes()


def _build_interpreter(folder: Path, sdk: Sdk, tools: Toolchain) -> bytes:
    suffixes = (".c", *CXX_SUFFIXES)
    base = InterpreterBase(folder, sdk, tools)
    if not base.glue(suffixes):
        raise BuildError(f"{folder} has no source file ({', '.join(suffixes)})")
    build = NativeBuild(sdk, tools, base.sources(suffixes), base)
    return (build.find() or build.make()).read_bytes()


def _sources(source: Path | str | Sequence[Path | str]) -> list[Path]:
    """Returns the absolute paths of the files to compile."""
    given = [Path(source)] if isinstance(source, str | Path) else [Path(s) for s in source]
    for path in given:
        if not path.exists():
            raise BuildError(f"no such file or folder: {path}")
    kinds = ", ".join(SOURCE_SUFFIXES)
    sources = given
    if len(given) == 1 and given[0].is_dir():
        sources = sorted(p for p in given[0].iterdir() if p.suffix in SOURCE_SUFFIXES)
    if not sources:
        where = given[0] if given else "an empty list"
        projects = f"no {cargo.MANIFEST} and no {assemblyscript.CONFIG}"
        raise BuildError(f"{where} has no source file ({kinds}), {projects}")
    for path in sources:
        if path.suffix not in SOURCE_SUFFIXES:
            if path.suffix in (".rs", ".ts", ".toml", ".json"):
                kinds += "; in Rust and AssemblyScript, name the folder"
            raise BuildError(f"{path} is not a source file of a controller ({kinds})")
    languages = {p.suffix == ".zig" for p in sources}
    if len(languages) > 1:
        raise BuildError(f"{sources[0].parent} mixes Zig with C or C++; use one or the other")
    return [p.resolve() for p in sources]


def _build_zig(sources: list[Path], sdk: Sdk, tools: Toolchain) -> bytes:
    """Returns the module. Zig itself tracks changes; without any, it takes 0.05 s."""
    mains = [p for p in sources if p.name == "main.zig"] or sources
    if len(mains) > 1:
        raise BuildError(f"{mains[0].parent} has several Zig files, but no main.zig to start from")
    with tempfile.TemporaryDirectory(dir=tools.cache) as scratch:
        made = Path(scratch) / "out.wasm"
        modules = ["--dep", "aici", f"-Mroot={mains[0]}", f"-Maici={sdk.zig_module}"]
        command = ["build-exe", *flags.ZIG, *modules, f"-femit-bin={made}", "--name", "controller"]
        tools.run(command, f"compiling {mains[0]}", keep=True)
        return made.read_bytes()


def _place(module: bytes, out: Path) -> bool:
    """Writes `out` atomically; returns False if it already has these bytes."""
    if out.is_file() and out.read_bytes() == module:
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out.parent, prefix=".aici-", delete=False) as temporary:
        temporary.write(module)
    Path(temporary.name).chmod(0o644)
    os.replace(temporary.name, out)
    return True
