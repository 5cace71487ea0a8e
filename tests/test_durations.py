"""Durations of tests: what a log says, and what is planned for a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aicirt.system.pace import GOOD_SECONDS
from tests import durations
from tests.durations import (
    ROOT,
    UNKNOWN,
    VLLM,
    Duration,
    Machine,
    Yardstick,
    expected,
    plan,
    read_durations,
    read_logs,
    write_durations,
    yardstick,
)

GOOD = Machine(Yardstick(GOOD_SECONDS, GOOD_SECONDS), 2, 1e9, has_main=True, has_vllm=True)
MINUTES = 60.0


def lasting(seconds: float) -> Duration:
    return Duration(tests=1, setup=0, call=seconds, teardown=0, sample="test_a", sample_s=seconds)


def log(path: Path, *entries: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return path


def test_a_log_becomes_seconds_of_a_good_machine(tmp_path: Path) -> None:
    """The machine of this log is twice as slow as a good one."""
    phases = [("a", "setup", 8), ("a", "call", 1), ("b", "setup", 2), ("b", "call", 4), ("b", "teardown", 2)]
    entries = [{"test": f"x.py::{test}", "phase": phase, "cpu": cpu} for test, phase, cpu in phases]
    slow = [{"yardstick": GOOD_SECONDS * 2 - 0.1}, {"yardstick": GOOD_SECONDS * 2 + 0.1}]
    (found,) = read_logs(
        [log(tmp_path / "1", *slow, *entries[:3]), log(tmp_path / "2", *entries[3:])]
    ).items()
    assert found == ("x.py", Duration(2, setup=5, call=2.5, teardown=1, sample="a", sample_s=5.5))
    assert found[1].total == 8.5


def test_the_recorder_logs_processor_seconds_with_those_of_children(tmp_path: Path) -> None:
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    (tmp_path / "test_x.py").write_text(
        "import subprocess, sys, time\n"
        f"def test_child(): subprocess.run([sys.executable, '-c', {spin!r}], check=True)\n"
        "def test_sleep(): time.sleep(0.5)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.recorder", "-q", tmp_path, "--rootdir", tmp_path]
    env = os.environ | {"AICI_DURATIONS": str(tmp_path / "log"), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    calls = {entry["test"]: entry["cpu"] for entry in entries if entry.get("phase") == "call"}
    assert calls["test_x.py::test_child"] >= 0.5 > calls["test_x.py::test_sleep"]
    assert [entry for entry in entries if "yardstick" in entry]
    assert read_logs([tmp_path / "log"])["test_x.py"].tests == 2


def test_processes_of_pytest_import_a_file_one_after_the_other(tmp_path: Path) -> None:
    """The first one has compiled it then."""
    (tmp_path / "test_x.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "os.mkdir(Path(__file__).with_name('in use'))\n"
        "for _ in range(100): os.sched_yield()\n"
        "os.rmdir(Path(__file__).with_name('in use'))\n"
        "def test_one(): pass\ndef test_two(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.recorder", "-n4", tmp_path, "--rootdir", tmp_path]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_the_table_keeps_files_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "TABLE", tmp_path / "table.json")
    write_durations({"tests/test_durations.py": lasting(2), "tests/test_gone.py": lasting(3)})
    found = read_durations()
    assert found["tests/test_durations.py"] == lasting(2)
    assert found["tests/test_quick.py"] == UNKNOWN and "tests/test_gone.py" not in found
    write_durations(found)
    assert read_durations() == found


def test_the_yardstick_is_that_of_five_million_additions() -> None:
    few, all_of_them = yardstick(500_000), yardstick()
    assert 0.1 < few.cpu / all_of_them.cpu < 10
    assert all_of_them.wall >= 0.99 * all_of_them.cpu > 0


def test_seconds_of_paths() -> None:
    table = {
        "tests/a/test_b.py": lasting(1),
        "tests/ab/test_c.py": lasting(2),
        f"{VLLM}/test_d.py": lasting(4),
    }
    assert expected(table) == {False: 3, True: 4}
    assert expected(table, [Path("tests/a")]) == {False: 1, True: 0}
    assert expected(table, [Path("tests/ab/test_c.py"), VLLM]) == {False: 2, True: 4}
    elsewhere = {f"{VLLM}/test_copies.py": lasting(8)}  # the simulated worker runs it
    assert expected(elsewhere) == {False: 0, True: 0}
    assert expected(elsewhere, [VLLM]) == {False: 0, True: 8}


def test_slow_machines_take_longer() -> None:
    """By the clock too: where others use the machine, the loop takes longer than its processor seconds."""
    seconds = {False: 100.0, True: 50.0}
    minutes = GOOD.minutes(seconds)
    slow = Machine(Yardstick(GOOD_SECONDS * 5, GOOD_SECONDS * 5), 2, 1e9, has_main=True, has_vllm=True)
    crowded = Machine(Yardstick(GOOD_SECONDS, GOOD_SECONDS * 5), 2, 1e9, has_main=True, has_vllm=True)
    assert slow.minutes(seconds) == crowded.minutes(seconds) == pytest.approx(5 * minutes)
    narrow = Machine(GOOD.yardstick, 1, 1e9, has_main=True, has_vllm=True)
    assert narrow.minutes(seconds) == pytest.approx(2 * minutes)
    new = Machine(GOOD.yardstick, 2, 1e9, has_main=False, has_vllm=False)
    assert new.minutes(seconds) > minutes + 6, "creates both environments"
    assert new.minutes({False: 100.0, True: 0}) < new.minutes(seconds) - 2


def test_both_suites_run_at_once_where_there_is_room() -> None:
    roomy = replace(GOOD, memory=20e9)
    seconds = {False: 100.0, True: 50.0}
    assert roomy.beside and not replace(roomy, processors=1).beside
    assert seconds[True] / 60 < roomy.minutes(seconds) < GOOD.minutes(seconds)
    assert roomy.minutes({False: 1, True: 50}) == pytest.approx(50 / 60), "vLLM's tests have one process"
    for only in ({False: 100.0, True: 0.0}, {False: 0.0, True: 50.0}):
        assert roomy.minutes(only) == GOOD.minutes(only)
    table = {"tests/test_a.py": lasting(9), f"{VLLM}/test_b.py": lasting(9)}
    assert [list(plan(roomy, table, choice, []))[2] for choice in ("all", "quick")] == ["beside", "after"]


@pytest.mark.parametrize(
    ("machine", "choice", "says"),
    [
        (GOOD, "all", "all tests: about "),
        (GOOD, "quick", "a short selection of tests: about "),
        (GOOD, "60", "min here (at most the 60 min that are allowed)"),
        (GOOD, "10", "more than the 10 min that are allowed"),
        (Machine(Yardstick(2.5, 2.5), 2, 1e9, True, True), "60", "more than the 60 min that are allowed"),
        (Machine(Yardstick(0.3, 2.5), 2, 1e9, True, True), "60", "and 2.50 s by the clock"),
    ],
)
def test_all_tests_run_where_they_end_in_time(machine: Machine, choice: str, says: str) -> None:
    table = {"tests/test_a.py": lasting(20 * MINUTES), f"{VLLM}/test_b.py": lasting(10 * MINUTES)}
    what, slower, order, sentence = plan(machine, table, choice, [])
    assert order == "after", "it has no room"
    assert says in sentence
    assert what == ("quick" if "short selection" in sentence else "all")
    assert int(slower) >= machine.slower


def test_a_plan_needs_no_packages() -> None:
    """scripts/test.sh asks for it before there is an environment."""
    command = [sys.executable, "-S", "-m", "tests.durations", "--plan", "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    what, slower, order, sentence = done.stdout.splitlines()
    assert what in ("all", "quick") and int(slower) >= 1 and order in ("beside", "after") and sentence
