"""Builds a controller in Rust, a crate, with the local cargo."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

from .errors import BuildError, MissingToolchain
from .sdk import find_sdk

MANIFEST = "Cargo.toml"
TARGET = "wasm32-unknown-unknown"

GET_RUST = "install Rust (https://www.rust-lang.org/tools/install), then: rustup target add " + TARGET
#: rustc prints these if the target's standard library is missing
_NO_TARGET = ("error[E0463]", "target may not be installed")


def is_crate(folder: Path) -> bool:
    """Returns whether a folder is a Rust crate."""
    return (folder / MANIFEST).is_file()


def build_crate(folder: Path) -> bytes:
    """Builds the crate in `folder` and returns the module. cargo keeps its artifacts in ``target`` as usual.

    Raises:
        MissingToolchain: cargo is missing, or has no standard library for Wasm.
        BuildError: cargo fails (the error contains its messages), or the crate builds no Wasm file.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise MissingToolchain(f"building {folder} needs cargo, which is not on PATH: {GET_RUST}")
    _look_for_sdk(folder / MANIFEST)
    command = [cargo, "build", "--release", "--target", TARGET, "--message-format=json-render-diagnostics"]
    # run in the folder, where cargo looks for .cargo/config.toml
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        if all(words in done.stderr for words in _NO_TARGET):
            raise MissingToolchain(f"{cargo} has no standard library for {TARGET}: {GET_RUST}")
        raise BuildError(f"compiling {folder} failed:\n{done.stderr.strip()}")
    return _module(done.stdout, folder).read_bytes()


def _module(messages: str, folder: Path) -> Path:
    """Returns the Wasm file among the artifacts in cargo's messages, one JSON object per line."""
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact":
            # dependencies produce no Wasm files
            for file in map(Path, message["filenames"]):
                if file.suffix == ".wasm":
                    return file
    raise BuildError(
        f'the crate in {folder} builds no Wasm file: write crate-type = ["cdylib"] under [lib] in {MANIFEST}'
    )


def _look_for_sdk(manifest: Path) -> None:
    """Raises BuildError if the manifest names a wrong path of the crate `aici`.

    A path that was written on another machine is the most likely mistake.
    """
    try:
        dependency = tomllib.loads(manifest.read_text()).get("dependencies", {}).get("aici")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return  # cargo reports it better
    path = dependency.get("path") if isinstance(dependency, dict) else None
    if path is not None and not (manifest.parent / path / MANIFEST).is_file():
        raise BuildError(
            f"{manifest} names the crate aici at {path}, where it is not; "
            f'on this machine: path = "{find_sdk().rust_crate}"'
        )
