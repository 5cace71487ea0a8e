"""Model folders, which are built once and appear atomically."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.system.waiting import PATIENCE
from pyaici.models import ModelError, store


def build(
    target: Path,
    text: str = "x",
    space: int = 0,
    lines: list[str] | None = None,
    error: OSError | None = None,
) -> Path:
    def fill(folder: Path, scratch: Path) -> None:
        (scratch / "big.tmp").write_text("not kept")
        (folder / "file").write_text(text)
        if error:
            raise error

    def is_current(folder: Path) -> bool:
        return (folder / "file").exists() and (folder / "file").read_text() == text

    say = (lambda line: None) if lines is None else lines.append
    return store.build_once(target, is_current, fill, space=space, progress=say)


def test_folder_is_built_once(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    assert build(target) == target
    first = (target / "file").stat().st_mtime_ns
    assert build(target) == target
    assert (target / "file").stat().st_mtime_ns == first
    assert [entry.name for entry in target.iterdir()] == ["file"]
    assert {entry.name for entry in target.parent.iterdir()} == {"model", ".model.lock"}


def test_outdated_folder_is_replaced(tmp_path: Path) -> None:
    build(tmp_path / "model", "old")
    build(tmp_path / "model", "new")
    assert (tmp_path / "model" / "file").read_text() == "new"


def test_failed_build_leaves_no_folder_and_keeps_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is full: 5 MB are needed"):
        build(tmp_path / "model", space=5 << 20, error=OSError(errno.ENOSPC, "No space left"))
    assert [entry.name for entry in tmp_path.iterdir()] == [".model.lock"]
    build(tmp_path / "model", "good")
    with pytest.raises(ModelError, match="cannot write"):
        build(tmp_path / "model", "bad", error=OSError(errno.EIO, "broken disk"))
    assert (tmp_path / "model" / "file").read_text() == "good"


def test_lack_of_space_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    with pytest.raises(ModelError, match=r"has 100 MB free, 700 MB are needed.*XDG_CACHE_HOME"):
        build(tmp_path / "model", space=700 << 20)


def test_cache_path_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot write .*XDG_CACHE_HOME"):
        build(tmp_path / "file" / "models" / "model")


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".model.part-abc" / "new"
    left.mkdir(parents=True)
    (left / "weights").write_text("half")
    build(tmp_path / "model")
    assert not left.parent.exists()


def test_second_process_waits_instead_of_building(tmp_path: Path) -> None:
    """The second process reports that it waits for the first, and does not build."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pyaici.models.store import build_once\n"
        "def fill(folder, scratch):\n"
        "    Path(sys.argv[2]).touch()\n"
        "    while not Path(sys.argv[3]).exists(): time.sleep(0.01)\n"
        "    (folder / 'file').write_text('1')\n"
        "build_once(Path(sys.argv[1]), lambda f: f.exists(), fill, space=0, progress=print)\n"
    )
    building, go = tmp_path / "building", tmp_path / "go"
    first = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "model"), str(building), str(go)])
    try:
        limit = time.monotonic() + PATIENCE
        while not building.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        assert building.exists()
        lines: list[str] = []

        def say(line: str) -> None:
            lines.append(line)
            go.touch()  # the first process can finish now

        def never(folder: Path, scratch: Path) -> None:
            raise AssertionError("the other process builds")

        store.build_once(tmp_path / "model", Path.exists, never, space=0, progress=say)
        assert lines == ["another process is preparing the model; waiting for it"]
        assert (tmp_path / "model" / "file").read_text() == "1"
        assert first.wait(PATIENCE) == 0
    finally:
        first.kill()
        first.wait()


def test_models_folder_follows_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.models_folder() == tmp_path / "aici" / "models"
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", os.sep + "home")
        assert store.models_folder() == Path("/home/.cache/aici/models")
