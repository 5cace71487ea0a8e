"""The compiler: its absence, its cache, the first build, and locks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pyaici.toolchain
from lab.system.waiting import PATIENCE, wait_until
from pyaici.toolchain import BuildError, Toolchain, build_controller
from pyaici.toolchain.sdk import install_command
from pyaici.toolchain.zig import cache_dir

from .conftest import CountingToolchain


def test_error_for_a_missing_compiler_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match=r"scripts/setup\.sh sdk$"):
        Toolchain()


def test_command_that_installs_extras_depends_on_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_command("hf").endswith("/scripts/setup.sh hf")
    monkeypatch.setattr("pyaici.toolchain.sdk.source_tree", lambda: None)
    assert install_command("llama,server") == 'pip install "pyaici[llama,server]"'


def test_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "aici"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "aici"


def test_error_for_an_unusable_cache_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="Not a directory; set XDG_CACHE_HOME"):
        Toolchain()


def test_second_build_waits_for_the_lock(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    waiting = CountingToolchain(tools.cache)
    builds = threading.Thread(
        target=build_controller, args=(c_source, tmp_path / "out.wasm"), kwargs={"tools": waiting}
    )
    (record,) = build_and_drop_records(c_source, tmp_path, tools)
    with tools.lock(record.stem):
        builds.start()
        wait_until(lambda: waiting.messages)
        builds.join(0.3)
        assert builds.is_alive()
        assert waiting.messages == ["waiting for another build to end"]
        assert waiting.commands == []
    builds.join(PATIENCE)
    assert waiting.commands
    assert (tmp_path / "out.wasm").exists()


def build_and_drop_records(source: Path, tmp_path: Path, tools: CountingToolchain) -> list[Path]:
    """Builds `source` and removes its record from the cache; returns the path of the record."""
    build_controller(source, tmp_path / "first.wasm", tools=tools)
    records = list((tools.cache / "build").glob("*.json"))
    for record in records:
        record.unlink()
    return records


def test_unused_artifacts_are_removed(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    for path in (tools.cache / "build").iterdir():
        os.utime(path, (0, 0))
    build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    (module,) = (tools.cache / "build").glob("*.wasm")
    assert module.stat().st_mtime > 0, "using an artifact updates its time"
    (c_source / "main.c").write_text((c_source / "main.c").read_text() + "\nextern int other;\n")
    build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    left = {path.suffix for path in (tools.cache / "build").iterdir() if path.stat().st_mtime == 0}
    assert left == set()
    assert module.exists()


def test_build_package_imports_only_the_standard_library() -> None:
    """The wheel's build runs this package by path, with only hatchling and ziglang installed."""
    package = Path(pyaici.toolchain.__file__).parent
    program = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "driver", {str(package / "__init__.py")!r}, submodule_search_locations=[{str(package)!r}])
module = importlib.util.module_from_spec(spec)
sys.modules["driver"] = module
spec.loader.exec_module(module)
import driver.__main__
known = {{*sys.stdlib_module_names, "driver", "__main__"}}
foreign = {{name.split(".")[0] for name in sys.modules}} - known
print(sorted(foreign))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
