"""Builds a controller in Rust: a crate, by the cargo of this machine."""

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
#: what rustc says where the target's standard library is missing
_NO_TARGET = ("error[E0463]", "target may not be installed")


def is_crate(folder: Path) -> bool:
    """Is it a crate of Rust?"""
    return (folder / MANIFEST).is_file()


def build_crate(folder: Path) -> bytes:
    """The module of the crate in `folder`. cargo keeps what it compiles where it always does, in ``target``.

    Raises:
        MissingToolchain: there is no cargo, or it does not compile for Wasm.
        BuildError: cargo fails (its messages are in the error).
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise MissingToolchain(f"building {folder} needs cargo, which is not on PATH: {GET_RUST}")
    _look_for_sdk(folder / MANIFEST)
    command = [cargo, "build", "--release", "--target", TARGET, "--message-format=json-render-diagnostics"]
    # in the folder, where cargo looks for .cargo/config.toml
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        if all(words in done.stderr for words in _NO_TARGET):
            raise MissingToolchain(f"{cargo} has no standard library for {TARGET}: {GET_RUST}")
        raise BuildError(f"compiling {folder} failed:\n{done.stderr.strip()}")
    return _module(done.stdout, folder).read_bytes()


def _module(messages: str, folder: Path) -> Path:
    """The Wasm file among the artifacts that cargo names, one JSON object a line."""
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact":
            # dependencies make no Wasm files
            for file in map(Path, message["filenames"]):
                if file.suffix == ".wasm":
                    return file
    raise BuildError(
        f'the crate in {folder} makes no Wasm file: write crate-type = ["cdylib"] under [lib] in {MANIFEST}'
    )


def _look_for_sdk(manifest: Path) -> None:
    """A path that was written on another machine is the likeliest thing to be wrong."""
    try:
        dependency = tomllib.loads(manifest.read_text()).get("dependencies", {}).get("aici")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return  # cargo says it better
    path = dependency.get("path") if isinstance(dependency, dict) else None
    if path is not None and not (manifest.parent / path / MANIFEST).is_file():
        raise BuildError(
            f"{manifest} names the crate aici at {path}, where it is not; "
            f'on this machine: path = "{find_sdk().rust_crate}"'
        )
