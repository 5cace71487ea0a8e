"""Reports on each wall, where it is active and where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from aicirt.doctor import State, walls
from aicirt.doctor.finding import Finding
from aicirt.sandbox import landlock

ALL = {"landlock": 7, "seccomp": True, "namespaces": ["user", "network"], "oom_score_adj": 900}


def found(monkeypatch: pytest.MonkeyPatch, check: str, **changed: object) -> Finding:
    """Returns the finding of `check` for a worker whose walls differ from ALL by `changed`."""
    reported: dict[str, Any] = {**ALL, **changed}
    monkeypatch.setattr(walls, "_walls", lambda: reported)
    finding: Finding = getattr(walls, check)()
    return finding


def test_reported_landlock_version_is_the_kernels() -> None:
    walls._walls.cache_clear()
    assert walls._walls()["landlock"] == landlock.version()


@pytest.mark.parametrize("check", ["landlock", "seccomp", "namespaces", "out_of_memory"])
def test_active_walls_are_ok(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    assert found(monkeypatch, check).state == State.OK


def test_older_landlock_suffices_with_seccomp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "landlock", landlock=3).state == State.OK


@pytest.mark.parametrize(
    ("check", "changed", "words"),
    [
        ("landlock", {"landlock": 0}, "can read"),
        ("landlock", {"landlock": 3, "seccomp": False}, "reach TCP"),
        ("landlock", {"landlock": 5, "seccomp": False}, "signal"),
        ("seccomp", {"seccomp": False}, "every system call"),
        ("namespaces", {"namespaces": []}, "one wall fewer"),
        ("namespaces", {"namespaces": [], "seccomp": False}, "reach the network"),
        ("out_of_memory", {"oom_score_adj": 0}, "end the engine"),
    ],
)
def test_missing_walls_are_notes(
    monkeypatch: pytest.MonkeyPatch, check: str, changed: dict[str, object], words: str
) -> None:
    finding = found(monkeypatch, check, **changed)
    assert finding.state == State.NOTE and words in finding.cost and finding.cure
