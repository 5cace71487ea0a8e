"""Names in /dev/shm, where other users may put anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.ipc import names
from tests.stranger import as_stranger, needs_root

SHM = Path("/dev/shm")
#: of a process that there cannot be
GONE = f"aici-{os.getuid()}-4194999-1"


@pytest.fixture
def cleared() -> Iterator[None]:
    yield
    for path in SHM.glob(f"*{GONE}*"):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def plant() -> list[str]:
    """One of each kind, under names of this user's."""
    kinds = {"ab": "file", "ac": "directory", "ad": "fifo", "ae": "link"}
    for end, kind in kinds.items():
        path = SHM / f"{GONE}-{end}"
        if kind == "file":
            path.write_bytes(b"planted")
            path.chmod(0o666)
        elif kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path, 0o666)
        else:
            path.symlink_to("/etc/hostname")
    (SHM / f"sem.{GONE}-ab").write_bytes(bytes(32))
    return [f"{GONE}-{end}" for end in kinds]


@needs_root
def test_planted_names_are_skipped(cleared: None) -> None:
    as_stranger(lambda: [plant(), None][1])
    mine = SHM / f"{GONE}-ff"
    mine.write_bytes(b"")
    assert [name for name in names.sweep_orphans() if GONE in name] == [mine.name]
    assert len(list(SHM.glob(f"*{GONE}*"))) == 5, "they are left alone"
    for end in ("ab", "ac", "ad", "ae"):
        with pytest.raises(ProtocolError, match=r"is no file of this user|cannot be opened"):
            names.open_shared_memory(f"/{GONE}-{end}")
    with pytest.raises(ProtocolError, match="is no file of this user"):
        names.share_semaphore(f"/{GONE}-ab", 0)
    assert (SHM / f"sem.{GONE}-ab").stat().st_gid != 0


def test_what_is_no_file_is_neither_removed_nor_opened(cleared: None) -> None:
    """Also where this user has made it."""
    planted = plant()
    removed = [name for name in names.sweep_orphans() if GONE in name]
    assert sorted(removed) == [f"{GONE}-ab", f"sem.{GONE}-ab"]
    for name in planted[1:]:
        with pytest.raises(ProtocolError):
            names.open_shared_memory(f"/{name}")
