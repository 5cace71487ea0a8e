"""A fake interpreter: a C file, packed like a source distribution on the package index."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import ClassVar

import pytest

from pyaici.build import Toolchain
from pyaici.build.cache import cache_dir
from pyaici.build.interpreters import LANGUAGES
from pyaici.build.interpreters.sdist import Sdist

ENGINE = '#include "engine.h"\n#include "port.h"\nint answer(void) { return 40 + PORT; }\n'


def pack(folder: Path, files: dict[str, str], package: str = "some_thing", version: str = "1.0") -> Sdist:
    """Writes ``PACKAGE-VERSION.tar.gz`` into the folder and returns its pin."""
    target = folder / f"{package}-{version}.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{package}-{version}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return Sdist("Thing", package, version, hashlib.sha256(target.read_bytes()).hexdigest())


@pytest.fixture
def sdists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates the folder of source distributions and sets AICI_SDISTS to it."""
    folder = tmp_path / "sdists"
    folder.mkdir()
    monkeypatch.setenv("AICI_SDISTS", str(folder))
    return folder


@pytest.fixture
def thing(sdists: Path, monkeypatch: pytest.MonkeyPatch) -> Sdist:
    """Registers the interpreter `thing` with the build."""
    packed = pack(sdists, {"src/engine.c": ENGINE, "src/engine.h": "int answer(void);\n", "setup.py": ""})

    class Thing:
        sdist: ClassVar = packed
        prefix: ClassVar = "src"
        flags: ClassVar[tuple[str, ...]] = ()
        setjmp: ClassVar = True

        def sources(self, tree: Path) -> list[Path]:
            return [tree / "engine.c"]

        def generate(
            self, tree: Path, glue: list[Path], include: tuple[Path, ...], out: Path, tools: Toolchain
        ) -> None:
            pass

    monkeypatch.setitem(LANGUAGES, "thing", Thing())
    return packed


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the machine's cache, which has the real sources since the controllers were built."""
    monkeypatch.delenv("AICI_SDISTS", raising=False)
    return cache_dir()
