"""The build of a source tree, and the build command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyaici.toolchain import BuildError, build_all, controller_folders, find_sdk
from pyaici.toolchain.__main__ import main

from .conftest import MINIMAL, CountingToolchain


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Creates a source tree of two controllers and a folder without sources."""
    root = tmp_path / "tree"
    sdk = root / "controllers" / "sdk"
    shutil.copytree(find_sdk().include, sdk / "include")
    for name in ("one", "two"):
        (root / "controllers" / name).mkdir()
        (root / "controllers" / name / "main.c").write_text(MINIMAL)
    (root / "controllers" / "notes").mkdir()
    (root / "controllers" / "notes" / "README.md").touch()
    return root


def test_build_all_builds_every_controller_once(tree: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    assert [p.name for p in controller_folders(tree)] == ["one", "two"]
    out = tmp_path / "out"
    built = build_all(out, root=tree, tools=tools)
    assert [b.name for b in built] == ["one", "two"]
    assert sorted(p.name for p in out.iterdir()) == ["one.wasm", "two.wasm"]
    tools.commands.clear()
    assert not any(b.changed for b in build_all(out, root=tree, tools=tools))
    assert tools.commands == []


def test_size_probe_is_reported_but_not_installed(
    tree: Path, tmp_path: Path, tools: CountingToolchain
) -> None:
    probe = tree / "controllers" / "sdk" / "size_probe.cpp"
    probe.write_text(MINIMAL.replace("AICI_EXPORT", 'extern "C" AICI_EXPORT'))
    out = tmp_path / "out"
    built = build_all(out, root=tree, tools=tools)
    assert built[-1].name == "size.three_layers"
    assert sorted(p.name for p in out.iterdir()) == ["one.wasm", "two.wasm"]


def test_build_error_names_the_controller(tree: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    (tree / "controllers" / "two" / "main.c").write_text("#error not yet\n")
    with pytest.raises(BuildError, match=r"two/main\.c(.|\n)*not yet"):
        build_all(tmp_path / "out", root=tree, tools=tools)


def test_command_prints_size_or_error(
    c_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my.wasm"
    assert main([str(c_source), "-o", str(out)]) == 0
    name, size, unit, *_ = capsys.readouterr().out.split()
    assert (name, unit) == ("my", "kB")
    assert float(size) == pytest.approx(out.stat().st_size / 1000, abs=0.05)
    assert main([str(tmp_path / "gone")]) == 1
    assert "error: no such file or folder" in capsys.readouterr().err
