"""Names of semaphores in /dev/shm, where other users may create any file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ProtocolError
from aicirt.ipc import names
from aicirt.ipc.doorbell import Doorbell
from tests.stranger import as_stranger, needs_root

SHM = Path("/dev/shm")
#: a prefix with the pid of a process that cannot exist
GONE = f"aici-{os.getuid()}-4194999-1"


@pytest.fixture
def cleared() -> Iterator[None]:
    yield
    for path in SHM.glob(f"*{GONE}*"):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def plant() -> list[str]:
    """Creates an entry of each kind under names that this user's processes would use."""
    kinds = {"ab": "file", "ac": "directory", "ad": "fifo", "ae": "link"}
    for end, kind in kinds.items():
        path = SHM / f"sem.{GONE}-{end}"
        if kind == "file":
            path.write_bytes(b"planted")
            path.chmod(0o666)
        elif kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path, 0o666)
        else:
            path.symlink_to("/etc/hostname")
    return [f"{GONE}-{end}" for end in kinds]


@needs_root
def test_entries_of_another_user_are_not_removed(cleared: None) -> None:
    as_stranger(lambda: [plant(), None][1])
    mine = SHM / f"sem.{GONE}-ff"
    mine.write_bytes(b"")
    assert [name for name in names.sweep_orphans() if GONE in name] == [mine.name]
    assert len(list(SHM.glob(f"*{GONE}*"))) == 4, "entries of another user stay"


def test_entries_that_are_not_files_are_neither_removed_nor_used(cleared: None) -> None:
    """Holds also for entries that this user has created."""
    planted = plant()
    removed = [name for name in names.sweep_orphans() if GONE in name]
    assert removed == [f"sem.{GONE}-ab"]
    for name in planted[1:]:
        with pytest.raises((ProtocolError, OSError)):
            Doorbell.open(f"/{name}")


def test_names_of_processes_that_cannot_be_looked_up_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may open no more files cannot tell whether another one is alive."""

    def refuse(_: Path) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    name = SHM / f"sem.{names.fresh_name().removeprefix('/')}"
    name.write_bytes(b"")
    try:
        with monkeypatch.context() as crowded:
            crowded.setattr(Path, "read_text", refuse)
            assert names.sweep_orphans() == []
        assert name.exists()
    finally:
        name.unlink()
