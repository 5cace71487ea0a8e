"""Each check, on a machine that passes it and on one that does not."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path

import pytest

from aicirt.doctor import State, examine, guests, machine


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
    def mappings() -> machine.Finding:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(machine, "mappings", mappings)
    (broken,) = [finding for finding in examine() if "out of luck" in finding.found]
    assert (broken.name, broken.state) == ("mappings", State.NOTE)


def test_shared_memory_check_requires_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert machine.shared_memory().state == State.OK
    monkeypatch.setattr(os, "posix_fallocate", full)
    missing = machine.shared_memory()
    assert missing.state == State.MISSING and "free memory" in missing.cure


@pytest.mark.parametrize(
    ("soft", "state"), [(64 << 10, State.MISSING), (8 << 20, State.OK), (resource.RLIM_INFINITY, State.OK)]
)
def test_stack_check_requires_a_large_enough_stack(soft: int, state: State) -> None:
    assert machine.stack(soft).state == state


@pytest.mark.parametrize(("soft", "state"), [(256, State.NOTE), (1024, State.OK)])
def test_open_files_check_notes_a_low_limit(soft: int, state: State) -> None:
    assert machine.open_files(soft).state == state


@pytest.mark.parametrize(("most", "state"), [(1000, State.NOTE), (65530, State.OK)])
def test_mappings_check_notes_a_low_limit(tmp_path: Path, most: int, state: State) -> None:
    assert machine.mappings(put(tmp_path, "proc/sys/vm/max_map_count", f"{most}\n")).state == state


def test_address_space_check_estimates_how_many_sequences_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = put(tmp_path, "proc/sys/vm/overcommit_memory", "2\n")
    assert "mode 2" in machine.overcommit(root).found
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (64 << 30, 64 << 30))
    assert machine.overcommit(root).cost == "a worker has room for about 15 sequences"


@pytest.mark.parametrize(("free", "state"), [(100 << 20, State.NOTE), (8 << 30, State.OK)])
def test_memory_check_notes_little_free_memory(free: int, state: State) -> None:
    found = machine.memory(free)
    assert found.state == state and f"{free >> 20} MiB free" in found.found


def test_processors_check_notes_too_few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1.5)
    assert machine.processors().state == State.NOTE


def test_worker_user_check_needs_root_and_an_existing_user() -> None:
    found = machine.worker_user()
    assert (found.state, "not possible" in found.found) == (
        (State.OK, False) if os.geteuid() == 0 else (State.NOTE, True)
    )
    found = machine.worker_user("no-such-user-here")
    assert found.state == State.NOTE and "there is no user" in found.found and "as root" in found.cure


def test_store_check_needs_free_space_and_private_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.store(tmp_path / "store").state == State.OK
    usage = machine.shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(machine.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
        assert machine.store(tmp_path / "store").state == State.NOTE
    (tmp_path / "store" / "compiled").chmod(0o777)
    found = machine.store(tmp_path / "store")
    assert found.state == State.MISSING and "open to other users" in found.found


def test_guest_checks_report_what_the_child_process_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(text: str) -> None:
        monkeypatch.setattr(guests, "_COMMAND", [sys.executable, "-c", text])
        guests._ask.cache_clear()

    program("print('guests'); print('changes PagemapReader')")
    assert (guests.run_guests().state, guests.changed_pages().state) == (State.OK, State.NOTE)
    program("raise SystemExit('no thread can be made')")
    assert guests.run_guests().state == State.MISSING
    assert guests.run_guests().found == "no thread can be made"
    assert guests.changed_pages().state == State.MISSING
    program("import os; os.kill(os.getpid(), 9)")
    assert guests.run_guests().found == "the check ended with status -9"
    guests._ask.cache_clear()
