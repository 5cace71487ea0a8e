"""Errors when Rust crates are built. tests/pyaici/cli/test_starters.py builds a working one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.cli.new import create
from pyaici.toolchain import BuildError, MissingToolchain, build_controller, find_sdk
from tests.languages import compiler_or_skip


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    """Creates the starter crate."""
    create(tmp_path / "crate", "rust")
    return tmp_path / "crate"


def write_cargo(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Writes a shell script named `cargo` and makes it the only program on PATH."""
    folder.mkdir()
    (folder / "cargo").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_missing_cargo_is_reported(crate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        MissingToolchain, match=r"needs cargo.*install Rust.*rustup target add wasm32-unknown"
    ):
        build_controller(crate, tmp_path / "out.wasm")
    assert not (tmp_path / "out.wasm").exists()


def test_missing_target_is_reported(crate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    message = "error[E0463]: can't find crate for `core`\n  = note: the `wasm32` target may not be installed"
    write_cargo(tmp_path / "bin", monkeypatch, f"echo '{message.replace(chr(39), '')}' >&2; exit 101")
    with pytest.raises(MissingToolchain, match=r"no standard library for wasm32.*rustup target add"):
        build_controller(crate, tmp_path / "out.wasm")


def test_crate_without_a_module_is_refused(
    crate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    artifact = '{"reason":"compiler-artifact","filenames":["libcontroller.rlib"]}'
    write_cargo(tmp_path / "bin", monkeypatch, f"echo '{artifact}'; echo a line of a build script")
    with pytest.raises(BuildError, match=r"builds no Wasm file: write crate-type = ..cdylib"):
        build_controller(crate, tmp_path / "out.wasm")


def test_sdk_path_of_another_machine_is_reported(crate: Path, tmp_path: Path) -> None:
    manifest = crate / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace(str(find_sdk().rust_crate), "/elsewhere/rust"))
    with pytest.raises(
        BuildError, match=f'at /elsewhere/rust.*on this machine: path = "{find_sdk().rust_crate}"'
    ):
        build_controller(crate, tmp_path / "out.wasm")


def test_compiler_errors_are_shown(crate: Path, tmp_path: Path) -> None:
    (crate / "src" / "lib.rs").write_text("fn broken() -> u32 { undefined_thing }\n")
    with compiler_or_skip():
        message = refusal(crate, tmp_path / "out.wasm")
    assert message.startswith(f"compiling {crate} failed:\n")
    assert "undefined_thing" in message
    assert "src/lib.rs:1:22" in message
    (crate / "Cargo.toml").write_text("[package\n")
    assert "unclosed table" in refusal(crate, tmp_path / "out.wasm")


def refusal(crate: Path, out: Path) -> str:
    """Returns the message of the build's error. A missing compiler raises MissingToolchain."""
    try:
        build_controller(crate, out)
    except MissingToolchain:
        raise
    except BuildError as error:
        return str(error)
    pytest.fail("the crate was built")
