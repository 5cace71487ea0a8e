"""Builds controllers, in any language, or takes them from the cache: one, or all of a source tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import flags
from .interpreters import SHARED, InterpreterBase, is_interpreter
from .native import NativeBuild
from .sdk import CXX_SUFFIXES, BuildError, MissingSources, MissingToolchain, Sdk, find_sdk, source_tree
from .zig import Toolchain

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
    if isinstance(source, str | Path) and is_crate(Path(source)):
        module = build_crate(Path(source))
    elif isinstance(source, str | Path) and is_assemblyscript(Path(source)):
        module = build_assemblyscript(Path(source), sdk)
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
        projects = f"no {CARGO_MANIFEST} and no {ASC_CONFIG}"
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


# -- all controllers of a source tree ------------------------------------------------------------------------

#: folders of controllers/ that are not controllers
_SHARED = ("sdk", SHARED, "decoding")
#: a controller that uses only the SDK's three layers, to measure their size
PROBE = "size_probe.cpp"
PROBE_NAME = "size.three_layers"


def controller_folders(root: Path) -> list[Path]:
    """Returns the folders of ``root/controllers`` that contain sources, except for shared folders."""
    folders = sorted(p for p in (root / "controllers").iterdir() if p.is_dir() and p.name not in _SHARED)
    return [f for f in folders if any(p.suffix in SOURCE_SUFFIXES for p in f.iterdir())]


def build_all(
    out_dir: Path | str, *, root: Path | None = None, tools: Toolchain | None = None
) -> list[Built]:
    """Builds each folder ``controllers/NAME`` below `root` to ``out_dir/NAME.wasm``.

    `root` is the source tree, by default the one that this package runs from.

    Skips a controller on an interpreter whose sources are missing.

    Raises:
        BuildError: there is no source tree, or a controller does not compile.
    """
    return list(iter_build(Path(out_dir), root=root, tools=tools))


def iter_build(out_dir: Path, *, root: Path | None = None, tools: Toolchain | None = None) -> Iterator[Built]:
    """Builds as `build_all`, yielding one module at a time; reports skipped interpreters to `progress`."""
    root = root or source_tree()
    if root is None:
        raise BuildError(
            "there is no source tree to build: an installed package has its controllers built already"
        )
    tools = tools or Toolchain()
    sdk = Sdk(root / "controllers" / "sdk")
    for folder in controller_folders(root):
        try:
            yield build_controller(folder, out_dir / f"{folder.name}.wasm", sdk=sdk, tools=tools)
        except MissingSources as error:
            tools.progress(f"{folder.name} is not built: {error}")
    probe = sdk.root / PROBE
    if probe.is_file():
        yield build_controller([probe], tools.cache / "size" / f"{PROBE_NAME}.wasm", sdk=sdk, tools=tools)


def remove_stale(out_dir: Path, built: Iterable[Built]) -> None:
    """Removes the modules in `out_dir` that are not in `built`, because their controllers no longer exist."""
    names = {module.path.name for module in built}
    for path in out_dir.glob("*.wasm"):
        if path.name not in names:
            path.unlink()


# -- Rust: a crate, with the local cargo ---------------------------------------------------------------------

CARGO_MANIFEST = "Cargo.toml"
_RUST_TARGET = "wasm32-unknown-unknown"
GET_RUST = "install Rust (https://www.rust-lang.org/tools/install), then: rustup target add " + _RUST_TARGET
#: rustc prints these if the target's standard library is missing
_NO_TARGET = ("error[E0463]", "target may not be installed")


def is_crate(folder: Path) -> bool:
    """Returns whether a folder is a Rust crate."""
    return (folder / CARGO_MANIFEST).is_file()


def build_crate(folder: Path) -> bytes:
    """Builds the crate in `folder` and returns the module. cargo keeps its artifacts in ``target`` as usual.

    Raises:
        MissingToolchain: cargo is missing, or has no standard library for Wasm.
        BuildError: cargo fails (the error contains its messages), or the crate builds no Wasm file.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise MissingToolchain(f"building {folder} needs cargo, which is not on PATH: {GET_RUST}")
    _check_sdk_path(folder / CARGO_MANIFEST)
    options = ["--release", "--target", _RUST_TARGET, "--message-format=json-render-diagnostics"]
    # run in the folder, where cargo looks for .cargo/config.toml
    done = subprocess.run(
        [cargo, "build", *options],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        if all(words in done.stderr for words in _NO_TARGET):
            raise MissingToolchain(f"{cargo} has no standard library for {_RUST_TARGET}: {GET_RUST}")
        raise BuildError(f"compiling {folder} failed:\n{done.stderr.strip()}")
    return _module_of_crate(done.stdout, folder).read_bytes()


def _module_of_crate(messages: str, folder: Path) -> Path:
    """Returns the Wasm file among the artifacts in cargo's messages, one JSON object per line."""
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact":
            # dependencies produce no Wasm files
            for file in map(Path, message["filenames"]):
                if file.suffix == ".wasm":
                    return file
    raise BuildError(
        f"the crate in {folder} builds no Wasm file: "
        f'write crate-type = ["cdylib"] under [lib] in {CARGO_MANIFEST}'
    )


def _check_sdk_path(manifest: Path) -> None:
    """Raises BuildError if the manifest names a wrong path of the crate `aici`.

    A path that was written on another machine is the most likely mistake.
    """
    try:
        dependency = tomllib.loads(manifest.read_text()).get("dependencies", {}).get("aici")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return  # cargo reports it better
    path = dependency.get("path") if isinstance(dependency, dict) else None
    if path is not None and not (manifest.parent / path / CARGO_MANIFEST).is_file():
        raise BuildError(
            f"{manifest} names the crate aici at {path}, where it is not; "
            f'on this machine: path = "{find_sdk().rust_crate}"'
        )


# -- AssemblyScript, with the asc of npm ---------------------------------------------------------------------

ASC_CONFIG = "asconfig.json"


def is_assemblyscript(folder: Path) -> bool:
    """Returns whether a folder is a project in AssemblyScript."""
    return (folder / ASC_CONFIG).is_file()


def build_assemblyscript(folder: Path, sdk: Sdk) -> bytes:
    """Builds the target ``release`` of the project in `folder` with the SDK `sdk`; returns the module.

    Raises:
        MissingToolchain: asc is neither in ``node_modules`` of the project or a parent folder nor on PATH,
            or Node.js is missing.
        BuildError: asc fails (the error contains its messages).
    """
    asc = _find_asc(folder.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "out.wasm"
        # these options override the file
        options = ["--lib", str(sdk.assemblyscript), "--outFile", str(made)]
        done = subprocess.run(
            [asc, "--config", ASC_CONFIG, "--target", "release", *options],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        words = (done.stdout + done.stderr).strip()
        if done.returncode or not made.is_file():
            raise BuildError(f"compiling {folder} failed:\n{words or f'{asc} wrote no module'}")
        return made.read_bytes()


def _find_asc(folder: Path) -> Path:
    """Returns the project's own asc, or the one on PATH; asc needs Node.js."""
    places = [above / "node_modules" / ".bin" / "asc" for above in (folder, *folder.parents)]
    found = next((place for place in places if place.is_file()), None) or shutil.which("asc")
    if found is None or shutil.which("node") is None:
        what = "asc, the compiler of AssemblyScript" if found is None else "Node.js, which asc runs on"
        raise MissingToolchain(
            f"building {folder} needs {what}: install Node.js 20 or newer (https://nodejs.org), "
            "then run npm install in this folder, or npm install --global assemblyscript"
        )
    return Path(found)
