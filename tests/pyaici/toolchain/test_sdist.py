"""Source distributions: they are fetched once and checked before any of their code runs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import tarfile
from pathlib import Path

import pytest

from pyaici.toolchain import MissingSources
from pyaici.toolchain.sdist import Sdist
from pyaici.toolchain.zig import Cache

from .conftest import pack


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", lambda _line: None)


def refusal(sdist: Sdist, cache: Cache) -> str:
    """Returns the one-line message of the error that fetching raises."""
    with pytest.raises(MissingSources) as caught:
        sdist.fetch(cache)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("the sources of Thing are missing: ")
    assert message.endswith("put that file into a folder and set AICI_SDISTS=DIR")
    assert not list((cache.cache / "build").glob("*.tar.gz"))
    return message


def test_sdist_is_taken_from_the_folder_and_then_from_the_cache(
    sdists: Path, cache: Cache, tmp_path: Path
) -> None:
    sdist = pack(sdists, {"src/a.c": "one", "src/deep/b.h": "two", "setup.py": "three", "srcs": "four"})
    tree = sdist.unpack(cache, "src", tmp_path / "tree")
    files = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}
    assert files == {"a.c": "one", "deep/b.h": "two"}
    (sdists / sdist.file_name).unlink()
    assert (sdist.unpack(cache, "src", tmp_path / "again") / "a.c").read_text() == "one"


def test_a_python_without_filters_of_archives_unpacks(
    sdists: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Python 3.11.2, which is that of Debian 12."""
    extract = tarfile.TarFile.extractall

    def without_filter(archive: tarfile.TarFile, path: Path, members: list[tarfile.TarInfo]) -> None:
        extract(archive, path, members)

    monkeypatch.setattr(tarfile.TarFile, "extractall", without_filter)
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    tree = pack(sdists, {"src/a.c": "one", "setup.py": ""}).unpack(cache, "src", tmp_path / "tree")
    assert [path.name for path in tree.iterdir()] == ["a.c"]


def test_folder_with_a_different_file_or_none_is_refused(sdists: Path, cache: Cache) -> None:
    sdist = pack(sdists, {"a.c": "one"})
    pack(sdists, {"a.c": "another"})
    assert "the file has SHA-256 " in refusal(sdist, cache)
    assert f", not {sdist.sha256}. " in refusal(sdist, cache)
    (sdists / sdist.file_name).unlink()
    assert f"AICI_SDISTS names the folder {sdists}, which lacks them" in refusal(sdist, cache)


def test_missing_pip_is_reported(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AICI_SDISTS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert "has no pip: run " in refusal(Sdist("Thing", "some_thing", "1.0", "0" * 64), cache)


def test_pip_without_the_package_or_with_a_different_one(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content must be checked before pip runs its ``setup.py``."""
    monkeypatch.delenv("AICI_SDISTS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wanted = Sdist("Thing", "some_thing", "1.0", "0" * 64)
    assert "pip cannot fetch them: " in refusal(wanted, cache)
    assert "some_thing==1.0" in refusal(wanted, cache)
    trace = tmp_path / "was run"
    pack(tmp_path, {"setup.py": f"open({str(trace)!r}, 'w')\n", "PKG-INFO": "Name: some_thing\n"})
    assert "DO NOT MATCH THE HASHES" in refusal(wanted, cache)
    assert not trace.exists()


def test_pip_fetches_the_package(tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AICI_SDISTS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    setup = "from setuptools import setup\nsetup(name='some_thing', version='1.0', py_modules=[])\n"
    information = "Metadata-Version: 2.1\nName: some_thing\nVersion: 1.0\n"
    sdist = pack(tmp_path, {"setup.py": setup, "PKG-INFO": information, "src/a.c": "one"})
    assert (sdist.unpack(cache, "src", tmp_path / "tree") / "a.c").read_text() == "one"


def test_an_old_setuptools_without_wheel_builds_in_isolation(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new environment of Python 3.11 has a setuptools that cannot describe a distribution without wheel."""
    monkeypatch.delenv("AICI_SDISTS", raising=False)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wheel" else find(name))
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "65.5.0")
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        said = "  ERROR: no wheel\nhint: See above for details.\n"
        return subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    assert "pip cannot fetch them: no wheel. " in refusal(
        Sdist("Thing", "some_thing", "1.0", "0" * 64), cache
    )
    assert "--no-build-isolation" not in commands[0]
