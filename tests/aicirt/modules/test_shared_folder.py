"""A folder of modules that other users can write: entries that they create there do no harm."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aicirt.contract.errors import RuntimeFailure, UnknownControllerError
from aicirt.modules.store import ModuleStore
from aicirt.system.files import read_regular
from tests.aicirt.modules.wat import small_module
from tests.stranger import as_stranger, let_through, needs_root
from tests.thorough import also

KINDS = ("fifo", "socket", "directory", "link", "loop", "device")


@contextmanager
def planted(path: Path, kind: str) -> Iterator[None]:
    if kind == "fifo":
        os.mkfifo(path, 0o666)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock:
            here = Path.cwd()
            os.chdir(path.parent)  # the name of a socket is short
            try:
                sock.bind("s")
            finally:
                os.chdir(here)
        (path.parent / "s").rename(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif os.geteuid() == 0:
        os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero
    else:
        pytest.skip("needs root, to make a device")
    yield
    path.rmdir() if kind == "directory" else path.unlink()


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "own", modules=tmp_path / "shared")


@pytest.mark.parametrize(
    ("suffix", "kind"),
    # both kinds of files are opened by the same function
    [
        *((".wasm", kind) for kind in KINDS),
        (".script", "link"),
        *also(*((".script", kind) for kind in KINDS)),
    ],
)
def test_entries_that_are_not_regular_files_are_not_modules(
    store: ModuleStore, tmp_path: Path, kind: str, suffix: str
) -> None:
    good = store.add(small_module(), "ann")
    wasm = small_module(1)
    name = hashlib.sha256(wasm).hexdigest()
    path = tmp_path / "shared" / f"{name}{suffix}"
    with planted(path, kind):
        assert not store.has(name) and not store.knows(wasm)
        assert [info.id for info in store.list()] == [good.id]
        for ask in (store.get, store.wasm, lambda name: store.find_call(name, b"") and store.get(name)):
            with pytest.raises(UnknownControllerError):
                ask(name)
        with pytest.raises(UnknownControllerError):
            store.remove(name, "ann")
        if kind == "directory" and suffix == ".wasm":
            with pytest.raises(RuntimeFailure, match="modules cannot be compiled and stored"):
                store.add(wasm)
            return
        assert store.add(wasm, "ann").id == name
        assert store.wasm(name) == wasm and store.remove(name, "ann")
        if suffix == ".wasm":
            path.touch()  # so that `planted` can remove it
    assert store.list() == [good]


@needs_root
@pytest.mark.parametrize("folder", ["owners", "compiled"])
def test_folders_of_another_user_are_refused(tmp_path: Path, folder: str) -> None:
    """Names of modules and their code are ours alone, also in a folder such as /tmp."""
    let_through(tmp_path)
    root = tmp_path / "own"
    root.mkdir()
    root.chmod(0o1777)
    as_stranger(lambda: (root / folder).mkdir(0o700))
    with pytest.raises(RuntimeFailure, match=f"{folder} belongs to user"):
        ModuleStore(root)


def test_a_huge_file_is_not_read_whole(store: ModuleStore, tmp_path: Path) -> None:
    name = "0" * 64
    with (tmp_path / "shared" / f"{name}.wasm").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnknownControllerError, match="damaged"):
        store.wasm(name)


def test_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_regular(path, 3) is None
    path.write_bytes(b"12345")
    assert read_regular(path, 3) == b"123"
    path.chmod(0o666)
    assert read_regular(path, 3, ours=True) is None
