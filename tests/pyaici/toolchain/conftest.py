"""Compilers with a private artifact cache, which share libc and libc++, and a fake interpreter."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from pyaici.toolchain import Sdk, Toolchain, find_sdk
from pyaici.toolchain.interpreters import LANGUAGES
from pyaici.toolchain.sdist import Sdist
from pyaici.toolchain.zig import cache_dir

MINIMAL = """
#include "aici.h"
AICI_CONTROLLER
static aici_step_arg arg = {.size = sizeof(arg)};
static aici_mid_result result = {.size = sizeof(result), .verb = AICI_STOP};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) { return &result; }
"""


class CountingToolchain(Toolchain):
    """Records the commands that were run and the messages."""

    def __init__(self, cache: Path) -> None:
        self.messages: list[str] = []
        self.commands: list[str] = []
        super().__init__(cache, self.messages.append)

    def run(self, arguments: Sequence[str | Path], what: str, *, keep: bool = False) -> None:
        if str(self.zig.parent) not in what:  # sources of libc, which other tests may have compiled
            self.commands.append(what)
        super().run(arguments, what, keep=keep)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[CountingToolchain]:
    """Returns a compiler with the test's own artifacts and the machine's objects of libc and libc++."""
    yield CountingToolchain(shared_cache(tmp_path / "cache"))


def shared_cache(cache: Path) -> Path:
    """Creates a cache whose artifacts of the compiler alone are those of the machine; returns its path."""
    cache.mkdir(parents=True)
    for folder in ("zig", "system"):
        shared = cache_dir() / folder
        shared.mkdir(parents=True, exist_ok=True)
        (cache / folder).symlink_to(shared)
    return cache


@pytest.fixture
def sdk(tmp_path: Path) -> Sdk:
    """Returns an SDK of the real ``aici.h`` and a library of two sources."""
    root = tmp_path / "sdk"
    (root / "include").mkdir(parents=True)
    (root / "src" / "deep").mkdir(parents=True)
    (root / "include" / "aici.h").write_text((find_sdk().include / "aici.h").read_text())
    (root / "include" / "answer.hpp").write_text("#pragma once\nint answer();\nint other();\n")
    (root / "src" / "answer.cpp").write_text('#include "answer.hpp"\nint answer() { return 42; }\n')
    (root / "src" / "deep" / "other.cpp").write_text(
        '#include <string>\n#include "answer.hpp"\nint other() { return std::to_string(answer()).size(); }\n'
    )
    return Sdk(root)


@pytest.fixture
def c_source(tmp_path: Path) -> Path:
    """Returns a folder with the smallest controller in C."""
    folder = tmp_path / "minimal"
    folder.mkdir()
    (folder / "main.c").write_text(MINIMAL)
    return folder


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
