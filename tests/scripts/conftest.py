"""A copy of the scripts, and the only programs that they find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts.support import (
    ROOT,
    environment,
    program,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts alone, in a folder where they may create an environment."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", copy / "scripts")
    shutil.copytree(ROOT / ".ci", copy / ".ci")
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the usual tools of Linux, without Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (
        "bash",
        "env",
        "cat",
        "cut",
        "dirname",
        "basename",
        "flock",
        "head",
        "mkdir",
        "mktemp",
        "realpath",
        "rm",
        "sed",
        "sha256sum",
        "uname",
    ):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return folder


@pytest.fixture
def recorded(checkout: Path, tools: Path) -> Path:
    """An environment whose Python logs its arguments; returns the log."""
    log = checkout / "log"
    python = environment(checkout / ".venv")
    plan = r"printf 'all\n2\nafter\nwhat is planned\n'"
    version = '[ "$1" != --version ] || echo Python 3.11.7'
    program(python, f'[ "$1" = -c ] || echo "$@" >>"{log}"; {version}; [ "$2" != tests.durations ] || {plan}')
    return log


@pytest.fixture
def recorded_vllm(checkout: Path, recorded: Path) -> Path:
    """The same for the environment of vLLM, whose lines begin with "vllm:"."""
    python = environment(checkout / ".venv-vllm")
    does = f'[ "$1" = -c ] || [ "$1" = --version ] || echo "vllm: $@" >>"{recorded}"'
    program(python, f'{does}; [ "$1" != --version ] || echo Python 3.11.7')
    return recorded


@pytest.fixture
def planned(checkout: Path, recorded_vllm: Path) -> Callable[[str], None]:
    """Sets what tests/durations.py says: a choice, how much slower this machine is, and a sentence."""

    def set_plan(text: str) -> None:
        python = checkout / ".venv" / "bin" / "python"
        before, printf, _ = python.read_text().rpartition("printf ")
        python.write_text(f"{before}{printf}'{text}\\n'\n")

    return set_plan
