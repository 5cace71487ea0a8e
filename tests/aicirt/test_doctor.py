"""Each check, on a machine that passes it and on one that does not; each layer, active or not."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from aicirt import doctor
from aicirt.doctor import Finding, State, examine
from aicirt.sandbox import landlock


def put(root: Path, name: str, text: str) -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root


def test_this_machine_lacks_nothing_required() -> None:
    findings = examine()
    assert [finding for finding in findings if finding.state == State.MISSING] == []
    assert len({finding.name for finding in findings}) == len(findings) >= 14
    assert all(finding.found for finding in findings)
    assert all(finding.cost for finding in findings if finding.state != State.OK)


def test_check_that_raises_is_reported_as_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def mappings() -> doctor.Finding:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(doctor, "mappings", mappings)
    (broken,) = [finding for finding in examine() if "out of luck" in finding.found]
    assert (broken.name, broken.state) == ("mappings", State.NOTE)


def test_shared_memory_check_requires_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert doctor.shared_memory().state == State.OK
    monkeypatch.setattr(os, "posix_fallocate", full)
    missing = doctor.shared_memory()
    assert missing.state == State.MISSING and "free memory" in missing.cure


@pytest.mark.parametrize(
    ("soft", "state"), [(64 << 10, State.MISSING), (8 << 20, State.OK), (resource.RLIM_INFINITY, State.OK)]
)
def test_stack_check_requires_a_large_enough_stack(soft: int, state: State) -> None:
    assert doctor.stack(soft).state == state


@pytest.mark.parametrize(("soft", "state"), [(256, State.NOTE), (1024, State.OK)])
def test_open_files_check_notes_a_low_limit(soft: int, state: State) -> None:
    assert doctor.open_files(soft).state == state


@pytest.mark.parametrize(("most", "state"), [(1000, State.NOTE), (65530, State.OK)])
def test_mappings_check_notes_a_low_limit(tmp_path: Path, most: int, state: State) -> None:
    assert doctor.mappings(put(tmp_path, "proc/sys/vm/max_map_count", f"{most}\n")).state == state


def test_address_space_check_estimates_how_many_sequences_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = put(tmp_path, "proc/sys/vm/overcommit_memory", "2\n")
    assert "mode 2" in doctor.overcommit(root).found
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (64 << 30, 64 << 30))
    assert doctor.overcommit(root).cost == "a worker has room for about 15 sequences"


@pytest.mark.parametrize(("free", "state"), [(100 << 20, State.NOTE), (8 << 30, State.OK)])
def test_memory_check_notes_little_free_memory(free: int, state: State) -> None:
    found = doctor.memory(free)
    assert found.state == state and f"{free >> 20} MiB free" in found.found


def test_processors_check_notes_too_few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "usable_cpus", lambda: 1.5)
    assert doctor.processors().state == State.NOTE


def test_worker_user_check_needs_root_and_an_existing_user() -> None:
    found = doctor.worker_user()
    assert (found.state, "not possible" in found.found) == (
        (State.OK, False) if os.geteuid() == 0 else (State.NOTE, True)
    )
    found = doctor.worker_user("no-such-user-here")
    assert found.state == State.NOTE and "there is no user" in found.found and "as root" in found.cure


def test_store_check_needs_free_space_and_private_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.store(tmp_path / "store").state == State.OK
    usage = doctor.shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
        assert doctor.store(tmp_path / "store").state == State.NOTE
    (tmp_path / "store" / "compiled").chmod(0o777)
    found = doctor.store(tmp_path / "store")
    assert found.state == State.MISSING and "open to other users" in found.found


def test_guest_checks_report_what_the_child_process_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(text: str) -> None:
        monkeypatch.setattr(doctor, "_GUESTS", [sys.executable, "-c", text])
        doctor._guests.cache_clear()

    program("print('guests'); print('changes PagemapReader')")
    assert (doctor.run_guests().state, doctor.changed_pages().state) == (State.OK, State.NOTE)
    program("raise SystemExit('no thread can be made')")
    assert doctor.run_guests().state == State.MISSING
    assert doctor.run_guests().found == "no thread can be made"
    assert doctor.changed_pages().state == State.MISSING
    program("import os; os.kill(os.getpid(), 9)")
    assert doctor.run_guests().found == "the check ended with status -9"
    doctor._guests.cache_clear()


ALL = {"landlock": 7, "seccomp": True, "namespaces": ["user", "network"], "oom_score_adj": 900}


def found(monkeypatch: pytest.MonkeyPatch, check: str, **changed: object) -> Finding:
    """Returns the finding of `check` for a worker whose layers differ from ALL by `changed`."""
    reported: dict[str, Any] = {**ALL, **changed}
    monkeypatch.setattr(doctor, "_layers", lambda: reported)
    finding: Finding = getattr(doctor, check)()
    return finding


def test_reported_landlock_version_is_the_kernels() -> None:
    doctor._layers.cache_clear()
    assert doctor._layers()["landlock"] == landlock.version()


@pytest.mark.parametrize("check", ["landlock", "seccomp", "namespaces", "out_of_memory"])
def test_active_layers_are_ok(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
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
        ("namespaces", {"namespaces": []}, "one layer fewer"),
        ("namespaces", {"namespaces": [], "seccomp": False}, "reach the network"),
        ("out_of_memory", {"oom_score_adj": 0}, "end the engine"),
    ],
)
def test_missing_layers_are_notes(
    monkeypatch: pytest.MonkeyPatch, check: str, changed: dict[str, object], words: str
) -> None:
    finding = found(monkeypatch, check, **changed)
    assert finding.state == State.NOTE and words in finding.cost and finding.cure
