"""`scripts/test.sh` and `.ci/run`: which tests run where, and what is printed and cleaned up."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.system.processes import command_line, family, left_behind
from lab.system.waiting import PATIENCE
from tests.scripts.support import (
    BOTH,
    ROOT,
    logged,
    program,
    run,
    signal_while_it_sleeps,
)


@pytest.mark.parametrize(
    ("arguments", "main", "vllm"),
    [
        ("", "", BOTH),
        ("-k tests", "-k tests", f"-k tests {BOTH}"),
        ("-x -k parallel --lf", "-x -k parallel --lf", f"-x -k parallel --lf {BOTH}"),
        ("tests/pyaici/toolchain -k parallel", "tests/pyaici/toolchain -k parallel", None),
        ("tests/pyaici/engines/test_a.py::test_b", "tests/pyaici/engines/test_a.py::test_b", None),
        (f"{BOTH} -x", None, f"{BOTH} -x"),
        (f"{BOTH}/ -x", None, f"{BOTH}/ -x"),
        (f"./{BOTH}/test_v.py::test_c[a::b]", None, f"./{BOTH}/test_v.py::test_c[a::b]"),
        ("-x tests", "-x tests", f"-x {BOTH}"),
        ("tests/pyaici/engines -x", "tests/pyaici/engines -x", f"{BOTH} -x"),
        (f"tests/pyaici/toolchain -x {BOTH}/test_v.py", "tests/pyaici/toolchain -x", f"-x {BOTH}/test_v.py"),
    ],
)
def test_each_environment_runs_its_tests(
    arguments: str, main: str | None, vllm: str | None, checkout: Path, tools: Path, recorded_vllm: Path
) -> None:
    for name in ("tests/pyaici/toolchain/x", "tests/pyaici/engines/test_a.py", f"{BOTH}/test_v.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    done = run(checkout / "scripts" / "test.sh", *arguments.split(), path=tools, AICI_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    runs = [
        re.sub(
            r"-m pytest (--(numprocesses|timeout|durations|maxprocesses|dist|no|hypothesis)\S+ ?)+", "", line
        )
        for line in logged(recorded_vllm)
        if "-m pytest" in line
    ]
    assert runs == [
        *([] if main is None else [main]),
        *([] if vllm is None else [f"vllm: {vllm}"]),
    ]
    made = (checkout / ".venv-vllm" / ".aici-installed").exists()
    assert made == (vllm is not None), "creates no unused environment"


@pytest.mark.parametrize("arguments", ["tests/pyaici/bild", "-x tests/test_a.py::test_b"])
def test_path_that_does_not_exist_is_named(
    arguments: str, checkout: Path, tools: Path, recorded_vllm: Path
) -> None:
    done = run(checkout / "scripts" / "test.sh", *arguments.split(), path=tools)
    assert done.returncode == 4 and "test.sh: there is no test" in done.stderr, done.stderr
    assert not recorded_vllm.exists(), "nothing was created or run"


@pytest.mark.parametrize(
    ("main", "vllm", "status"),
    [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 1, 2), (5, 0, 0), (0, 5, 0), (5, 1, 1), (4, 5, 4), (5, 5, 5)],
)
def test_status_is_the_first_error_of_both_runs(
    main: int, vllm: int, status: int, checkout: Path, tools: Path, recorded_vllm: Path
) -> None:
    """5 is pytest's status without tests, as with a -k that matches in only one environment."""
    for environment, ends in ((".venv", main), (".venv-vllm", vllm)):
        python = checkout / environment / "bin" / "python"
        python.write_text(f'{python.read_text()}[ "$2" != pytest ] || exit {ends}\n')
    done = run(checkout / "scripts" / "test.sh", path=tools, AICI_DEVICE="cpu")
    assert done.returncode == status, done.stderr
    assert sum("-m pytest" in line for line in logged(recorded_vllm)) == 2


@pytest.mark.parametrize("order", ["after", "beside"])
@pytest.mark.parametrize(
    ("number", "to_group", "status"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)]
)
def test_pytest_cleans_up_after_a_signal(
    checkout: Path,
    tools: Path,
    recorded_vllm: Path,
    planned: Callable[[str], None],
    number: signal.Signals,
    to_group: bool,
    status: int,
    order: str,
) -> None:
    """Each run of pytest gets one signal, and tests that have not started do not start."""
    planned(rf"all\n2\n{order}\nwhat is planned")
    (tools / "sleep").symlink_to(shutil.which("sleep") or "")
    trap = f"trap 'echo interrupted >>\"{recorded_vllm}\"; exit 2' INT"
    for environment in (".venv", ".venv-vllm"):
        python = checkout / environment / "bin" / "python"
        wait = f"{trap}; for i in {{1..3000}}; do sleep 0.1; done"
        python.write_text(f'{python.read_text()}[ "$2" != pytest ] || {{ {wait}; }}')
    script = subprocess.Popen(
        [checkout / "scripts" / "test.sh"],
        env={"PATH": str(tools), "AICI_DEVICE": "cpu"},
        start_new_session=True,
    )
    runs = 2 if order == "beside" else 1
    members = signal_while_it_sleeps(script, number, to_group, runs)
    assert script.wait(PATIENCE) == status
    lines = logged(recorded_vllm)
    assert lines[-runs:] == ["interrupted"] * runs
    assert sum("-m pytest" in line for line in lines) == runs
    assert left_behind(members) == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("", "all"),
        ("--quick", "quick"),
        ("--within 60", "60"),
        ("tests/pyaici/toolchain -k x", "all tests/pyaici/toolchain"),
        (f"--within 9 {BOTH}", f"9 {BOTH}"),
    ],
)
def test_first_and_last_line_say_what_is_run_and_why(
    arguments: str, asked: str, checkout: Path, tools: Path, recorded_vllm: Path
) -> None:
    (checkout / "tests" / "pyaici" / "toolchain").mkdir(parents=True)
    (checkout / BOTH).mkdir(parents=True)
    done = run(checkout / "scripts" / "test.sh", *arguments.split(), path=tools, AICI_DEVICE="cpu")
    assert f"-m tests.durations --plan {asked}" in recorded_vllm.read_text().splitlines()
    first, *_, cpu, last = done.stdout.splitlines()
    assert first == "test.sh: what is planned"
    assert re.fullmatch(r"tests.cpu_s \d+ s", cpu)
    assert last == "test.sh: what is planned; ended with status 0 after 0 min"


def test_both_environments_run_at_once(
    checkout: Path, tools: Path, recorded_vllm: Path, planned: Callable[[str], None]
) -> None:
    """Each run waits for the other one to start. The output of vLLM's tests comes last."""
    planned(r"all\n2\nbeside\nwhat is planned")
    (tools / "sleep").symlink_to(shutil.which("sleep") or "")
    for environment, other in ((".venv", ".venv-vllm"), (".venv-vllm", ".venv")):
        python = checkout / environment / "bin" / "python"
        meet = f': >"{checkout}/{environment}-runs"; '
        meet += f'until [ -e "{checkout}/{other}-runs" ]; do sleep 0.01; done; echo tests of {environment}'
        python.write_text(f'{python.read_text()}[ "$2" != pytest ] || {{ {meet}; }}\n')
    done = run(checkout / "scripts" / "test.sh", path=tools, AICI_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    ours = [line for line in done.stdout.splitlines() if "tests of" in line]
    assert ours == ["tests of .venv", "tests of .venv-vllm"]
    runs = sorted(line for line in logged(recorded_vllm) if "-m pytest" in line)
    assert "--maxprocesses=4" in runs[0] and "--maxprocesses=1" in runs[1]


@pytest.mark.parametrize(("option", "profile"), [("--quick", "ci"), ("--thorough", "default")])
def test_only_a_thorough_run_looks_for_new_examples(
    checkout: Path, tools: Path, recorded_vllm: Path, option: str, profile: str
) -> None:
    done = run(checkout / "scripts" / "test.sh", option, "-x", path=tools, AICI_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    assert f"--hypothesis-profile={profile} " in next(
        line for line in logged(recorded_vllm) if "-m pytest" in line
    )


def test_ci_runs_all_tests_within_an_hour_or_the_quick_ones(
    checkout: Path, tools: Path, recorded_vllm: Path, planned: Callable[[str], None]
) -> None:
    for choice in ("quick", "all"):
        planned(rf"{choice}\n2\nafter\nwhat is planned")
        assert run(checkout / ".ci" / "run", path=tools, AICI_DEVICE="cpu").returncode == 0
        assert "-m tests.durations --plan 60" in recorded_vllm.read_text().splitlines()
        (main, *vllm) = [line for line in logged(recorded_vllm) if "-m pytest" in line]
        assert ("--quick" in main) == (choice == "quick")
        assert "--timeout=1200 " in main, "twice as long on a machine that is twice as slow"
        assert len(vllm) == (choice == "all"), "--quick creates no environment"


def test_quick_uses_the_environments_and_tools_that_exist(
    checkout: Path,
    tools: Path,
    recorded_vllm: Path,
    planned: Callable[[str], None],
    tmp_path: Path,
) -> None:
    planned(r"quick\n2\nafter\nwhat is planned")
    assert run(checkout / "scripts" / "setup.sh", "hf,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    for name in ("languages", "browser", "clang", "servers"):
        program(checkout / "scripts" / f"{name}.sh", f"echo {name} >>{tmp_path}/fetched; exit 1")
    (tmp_path / ".cache" / "aici" / "browser").mkdir(parents=True)
    env = {"HOME": str(tmp_path), "AICI_DEVICE": "cpu"}
    assert run(checkout / "scripts" / "test.sh", "--quick", path=tools, **env).returncode == 0
    assert (tmp_path / "fetched").read_text() == "browser\n"
    assert [line for line in logged(recorded_vllm) if "-m pytest" in line][1].startswith("vllm: -m pytest")


def test_unknown_number_of_minutes_is_refused(checkout: Path, tools: Path) -> None:
    for arguments in (("--within",), ("--within", "soon")):
        done = run(checkout / "scripts" / "test.sh", *arguments, path=tools)
        assert (done.returncode, done.stderr) == (4, "test.sh: --within needs a number of minutes\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_busy_processes_end_with_the_run(
    checkout: Path, tools: Path, recorded: Path, number: signal.Signals
) -> None:
    """Other arguments work with it. The tests and these processes have the lowest priority."""
    for name in ("sleep", "nproc", "renice"):
        (tools / name).symlink_to(shutil.which(name) or "")
    (checkout / "tests" / "pyaici" / "toolchain").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'{python.read_text()}\n[ "$2" != pytest ] || exec sleep 300')
    script = subprocess.Popen(
        [checkout / "scripts" / "test.sh", "--busy", "tests/pyaici/toolchain"],
        env={"PATH": str(tools)},
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not any(b"sleep" in command_line(pid) for pid in family(script.pid)):
        assert time.monotonic() < deadline and script.poll() is None
        time.sleep(0.02)
    members = family(script.pid)
    try:
        spinning = [pid for pid in members if b"test.sh" in command_line(pid) and pid != script.pid]
        assert len(spinning) == 4 * len(os.sched_getaffinity(0))
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in members} == {19}
        assert "--timeout=12000 --maxprocesses=4" in logged(recorded)[-1]
    finally:
        (os.killpg if number == signal.SIGINT else os.kill)(script.pid, number)
        script.wait(PATIENCE)
        if number == signal.SIGKILL:  # the tests, which were not told
            os.kill(next(pid for pid in members if b"sleep" in command_line(pid)), signal.SIGKILL)
    assert left_behind(members) == []


def test_environment_of_these_tests_is_up_to_date() -> None:
    """The real `setup.sh` has nothing to install in this checkout."""
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("these tests run in another environment than the one of scripts/test.sh")
    done = subprocess.run(
        [ROOT / "scripts" / "setup.sh"], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert "installing" not in done.stderr


def test_pytest_finds_tests_in_folders_called_build() -> None:
    """pytest skips such folders by default. It must skip only the folder of vLLM, which test.sh names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["norecursedirs"] == [".*", BOTH]
    assert BOTH in (ROOT / "scripts" / "test.sh").read_text()


@pytest.mark.parametrize("name", ["languages", "browser", "clang", "servers"])
def test_missing_tool_is_a_failure_in_ci(
    name: str, checkout: Path, tools: Path, recorded: Path, tmp_path: Path
) -> None:
    for other in ("languages", "browser", "clang", "servers"):
        program(checkout / "scripts" / f"{other}.sh", f"exit {int(other == name)}")
    (checkout / "tests" / "pyaici" / "toolchain").mkdir(parents=True)
    done = run(checkout / "scripts" / "test.sh", "tests/pyaici/toolchain", path=tools, CI="true")
    assert done.returncode == 1
    assert f"scripts/{name}.sh failed" in done.stderr
    assert not any("-m pytest" in line for line in logged(recorded))


@pytest.mark.parametrize(("status", "says"), [(0, "yes"), (1, "")])
def test_tests_must_use_a_fetched_browser(
    checkout: Path, tools: Path, recorded: Path, status: int, says: str
) -> None:
    program(checkout / "scripts" / "languages.sh", "exit 1")
    program(checkout / "scripts" / "browser.sh", f"printf /fetched/browser:; exit {status}")
    python = checkout / ".venv" / "bin" / "python"
    program(python, f'[ "$1" = --version ] || [ "$1" = -c ] || echo "$AICI_BROWSER $PATH" >>"{recorded}"')
    (checkout / "tests" / "pyaici" / "toolchain").mkdir(parents=True)
    assert run(checkout / "scripts" / "test.sh", "tests/pyaici/toolchain", path=tools).returncode == 0
    assert re.match(f"{says} /fetched/browser:.*/.venv/bin:", logged(recorded)[-1])


@pytest.mark.parametrize(("status", "says"), [(0, "all"), (1, "")])
def test_tests_must_use_a_fetched_compiler(
    checkout: Path, tools: Path, recorded: Path, status: int, says: str
) -> None:
    program(checkout / "scripts" / "languages.sh", f"printf /fetched/bin:; exit {status}")
    python = checkout / ".venv" / "bin" / "python"
    program(python, f'[ "$1" = --version ] || [ "$1" = -c ] || echo "$AICI_LANGUAGES $PATH" >>"{recorded}"')
    (checkout / "tests" / "pyaici" / "toolchain").mkdir(parents=True)
    assert run(checkout / "scripts" / "test.sh", "tests/pyaici/toolchain", path=tools).returncode == 0
    assert re.match(f"{says} /fetched/bin:.*/.venv/bin:", logged(recorded)[-1])
