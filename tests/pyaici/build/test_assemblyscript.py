"""Projects in AssemblyScript: what goes wrong says so. That they work, test_starters.py tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.build import BuildError, MissingToolchain, build_controller, find_sdk
from pyaici.cli.new import create
from tests.languages import compiler_or_skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The starter."""
    create(tmp_path / "project", "assemblyscript")
    return tmp_path / "project"


def pretend(program: Path, script: str) -> None:
    """A program that does what the script says."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_no_asc(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolchain, match=r"needs asc.*install Node\.js.*npm install in this folder"):
        build_controller(project, tmp_path / "out.wasm")
    pretend(project / "node_modules" / ".bin" / "asc", "exit 0")
    with pytest.raises(MissingToolchain, match=r"needs Node\.js, which asc runs on"):
        build_controller(project, tmp_path / "out.wasm")
    assert not (tmp_path / "out.wasm").exists()


def test_the_projects_own_compiler_comes_first(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(tmp_path / "bin" / "node", "exit 0")
    pretend(tmp_path / "bin" / "asc", "echo the one on PATH; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(BuildError, match=r"compiling .*project failed:\nthe one on PATH"):
        build_controller(project, tmp_path / "out.wasm")
    pretend(tmp_path / "node_modules" / ".bin" / "asc", "echo of a folder above; exit 1")
    with pytest.raises(BuildError, match="of a folder above"):
        build_controller(project, tmp_path / "out.wasm")
    pretend(project / "node_modules" / ".bin" / "asc", 'echo own: "$@"; exit 0')
    with pytest.raises(BuildError, match=r"own: --config asconfig\.json --target release --lib") as caught:
        build_controller(project, tmp_path / "out.wasm")
    assert str(find_sdk().assemblyscript) in str(caught.value)


def test_errors_of_the_compiler(project: Path, tmp_path: Path) -> None:
    (project / "main.ts").write_text("export const x: u32 = undefined_thing;\n")
    with compiler_or_skip():
        try:
            build_controller(project, tmp_path / "out.wasm")
        except MissingToolchain:
            raise
        except BuildError as error:
            said = str(error)
    assert "Cannot find name 'undefined_thing'" in said
    assert "main.ts(1,23)" in said
