"""Errors when AssemblyScript projects are built. tests/pyaici/cli/test_starters.py builds working ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.cli.new import create
from pyaici.toolchain import BuildError, MissingToolchain, build_controller, find_sdk
from tests.languages import compiler_or_skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Creates the starter project."""
    create(tmp_path / "project", "assemblyscript")
    return tmp_path / "project"


def write_program(program: Path, script: str) -> None:
    """Writes an executable shell script to the path `program`."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_missing_asc_or_node_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolchain, match=r"needs asc.*install Node\.js.*npm install in this folder"):
        build_controller(project, tmp_path / "out.wasm")
    write_program(project / "node_modules" / ".bin" / "asc", "exit 0")
    with pytest.raises(MissingToolchain, match=r"needs Node\.js, which asc runs on"):
        build_controller(project, tmp_path / "out.wasm")
    assert not (tmp_path / "out.wasm").exists()


def test_compiler_of_the_project_takes_precedence(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_program(tmp_path / "bin" / "node", "exit 0")
    write_program(tmp_path / "bin" / "asc", "echo the one on PATH; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(BuildError, match=r"compiling .*project failed:\nthe one on PATH"):
        build_controller(project, tmp_path / "out.wasm")
    write_program(tmp_path / "node_modules" / ".bin" / "asc", "echo of a folder above; exit 1")
    with pytest.raises(BuildError, match="of a folder above"):
        build_controller(project, tmp_path / "out.wasm")
    write_program(project / "node_modules" / ".bin" / "asc", 'echo own: "$@"; exit 0')
    with pytest.raises(BuildError, match=r"own: --config asconfig\.json --target release --lib") as caught:
        build_controller(project, tmp_path / "out.wasm")
    assert str(find_sdk().assemblyscript) in str(caught.value)


def test_compiler_errors_are_shown(project: Path, tmp_path: Path) -> None:
    (project / "main.ts").write_text("export const x: u32 = undefined_thing;\n")
    with compiler_or_skip():
        try:
            build_controller(project, tmp_path / "out.wasm")
        except MissingToolchain:
            raise
        except BuildError as error:
            output = str(error)
    assert "Cannot find name 'undefined_thing'" in output
    assert "main.ts(1,23)" in output
