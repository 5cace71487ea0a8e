"""The short selection: a test for each module, and those that reach a change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import quick
from tests.durations import QUICK_S, VLLM, read_durations
from tests.quick import (
    MAIN_JOBS,
    OTHERS,
    RULES,
    Selection,
    add_modules,
    behaviour,
    mirror,
    reaching,
    untested,
)
from tests.reach import neighbours
from tests.structure import ROOT


def test_every_module_has_a_test_of_its_behaviour() -> None:
    """A new module needs a file of tests in the folder that mirrors its own."""
    assert untested() == []


def test_named_files_exist() -> None:
    assert [name for name in (*MAIN_JOBS, *RULES, *OTHERS.values()) if not (ROOT / name).is_file()] == []
    for name, test in MAIN_JOBS.items():
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / name).read_text()


def test_the_modules_fit_into_the_time() -> None:
    """Changes have the rest of the time."""
    selection = Selection()
    add_modules(selection, read_durations(), has_vllm=True)
    assert selection.seconds < QUICK_S
    assert len(selection.files) > 100


def test_nothing_of_vllm_is_selected_without_its_environment() -> None:
    selection = Selection()
    add_modules(selection, read_durations(), has_vllm=False)
    assert not [path for path in selection.files if path.is_relative_to(VLLM)]
    assert "pyaici/engines/vllm/" in selection.notes[1], "says which modules have no test then"


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("tests/test_quick.py", "tests/reach.py"),
        # the package of a module, and modules that are only started
        ("tests/test_quick.py", "tests/durations.py"),
        ("pyaici/client/runtime.py", "pyaici/__init__.py"),
        ("pyaici/client/control.py", "aicirt/__main__.py"),
        # relative imports
        ("pyaici/toolchain/native.py", "pyaici/toolchain/zig.py"),
        ("pyaici/toolchain/interpreters.py", "pyaici/toolchain/zig.py"),
        # public names
        ("lab/suites/overhead.py", "pyaici/engines/hf/engine.py"),
        # plugins of vLLM
        ("lab/vllm/engines.py", "pyaici/engines/vllm/plugin.py"),
    ],
)
def test_files_reach_what_they_import_and_start(path: str, reached: str) -> None:
    assert Path(reached) in neighbours(Path(path))


def test_the_best_test_of_a_module_mirrors_it() -> None:
    ranks = behaviour(Path("tests/../aicirt/ipc/ring.py").relative_to("tests/.."))
    assert ranks[Path("tests/aicirt/ipc/test_ring.py")] == 0
    assert min(rank for test, rank in ranks.items() if test.name != "test_ring.py") > 0


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("aicirt/ipc/ring.py", "tests/aicirt/ipc"),
        ("controllers/regex/main.cpp", "tests/controllers/regex"),
        ("pyaici/engines/vllm/scheduling/groups.py", "tests/pyaici/engines/vllm"),
        ("scripts/locks/hf.txt", "tests/scripts"),
    ],
)
def test_folders_are_mirrored(path: str, folder: str) -> None:
    assert mirror(Path(path)) == Path(folder)


def test_tests_that_reach_a_change_are_found() -> None:
    ring = reaching([Path("aicirt/ipc/ring.py")])
    assert ring[Path("tests/aicirt/ipc/test_ring.py")] == 1
    assert ring[Path("tests/pyaici/client/test_verbs.py")] > 1, "through the client"
    assert set(reaching([Path("scripts/browser.sh")])) >= {Path("tests/scripts/test_tools.py")}
    assert Path("tests/aicirt/ipc/test_ring.py") not in reaching([Path("scripts/browser.sh")])
    lark = reaching([Path("controllers/lark/main.cpp")])
    assert lark and all(test.is_relative_to("tests/controllers/lark") for test in lark)
    assert reaching([Path("tests/test_locks.py")])[Path("tests/test_locks.py")] == 0


def git(folder: Path, *command: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ("git", *identity, *command), cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_changes_are_since_the_last_release_or_origin_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    git(tmp_path, "init", "--quiet")

    def commit(name: str) -> None:
        (tmp_path / name).touch()
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "--quiet", "--message", name)

    commit("first.py")
    (tmp_path / "new.py").touch()
    assert quick.changed_files() == ("", [Path("new.py")])
    git(tmp_path, "tag", "v1.0")
    commit("second.py")
    assert quick.changed_files() == ("v1.0", [Path("new.py"), Path("second.py")])
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert quick.changed_files()[0] == "v1.0", "what is in origin/main is compared with the release"
    commit("third.py")
    (tmp_path / "first.py").unlink()
    assert quick.changed_files() == (
        "origin/main",
        [Path(f"{name}.py") for name in ("first", "new", "third")],
    )


def test_workers_of_pytest_run_the_selection() -> None:
    command = [sys.executable, "-m", "pytest", "--quick", "-n1", "-v", "tests/aicirt/contract"]
    variables = {name: value for name, value in os.environ.items() if name != "AICI_DURATIONS"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    files = quick.select(quick.vllm_exists()).files
    selected = {path for path in files if path.is_relative_to("tests/aicirt/contract")}
    assert selected
    assert {Path(name) for name in re.findall(r"PASSED (\S+?)::", done.stdout)} == selected
