"""The other scripts: arguments, what they build, and settings that all have."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from tests.scripts.support import (
    ROOT,
    installs,
    logged,
    program,
    run,
)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("scripts/run.sh", "harness/run_llama.py --model a path --n 2"),
        ("scripts/hf.sh", "harness/run_hf.py --model a path --n 2"),
        ("scripts/vllm.sh", "vllm: harness/run_vllm.py --model a path --n 2"),
        ("scripts/test.sh", "vllm: -m pytest .* --model a path --n 2 tests/pyaici/engines/vllm"),
        (".ci/run", "vllm: -m pytest .* --model a path --n 2 tests/pyaici/engines/vllm"),
        ("scripts/bench.sh", "-m lab --model a path --n 2"),
        ("scripts/campaign.sh", "-m lab.campaigns --model a path --n 2"),
    ],
)
def test_arguments_are_passed_on(
    script: str,
    expected: str,
    checkout: Path,
    tools: Path,
    recorded_vllm: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scripts work from any folder."""
    monkeypatch.setenv("AICI_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    done = run(checkout / script, "--model", "a path", "--n", "2", path=tools)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(expected, logged(recorded_vllm)[-1])


@pytest.mark.parametrize(
    ("arguments", "controller", "fetches"),
    [
        ((), "regex", True),
        (("--controller", "yesno", "--prompt", "x"), "yesno", True),
        (("--controller=yesno", "--prompt", "x"), "yesno", True),
        (("--controller", "my_script.py", "--prompt", "x"), "pyctrl", True),
        (("--controller", "mine.wasm", "--model", "mine.gguf"), None, False),
        (("--help",), None, False),
    ],
    ids=str,
)
def test_run_builds_only_the_controller_that_runs(
    arguments: tuple[str, ...],
    controller: str | None,
    fetches: bool,
    checkout: Path,
    tools: Path,
    recorded: Path,
) -> None:
    for name in ("regex", "yesno", "pyctrl"):
        (checkout / "controllers" / name).mkdir(parents=True)
    done = run(checkout / "scripts" / "run.sh", *arguments, path=tools)
    assert done.returncode == 0, done.stderr
    calls = logged(recorded)[len(installs("llama")) :]
    assert calls[-1] == " ".join(("harness/run_llama.py", *arguments))
    build = f"-m pyaici.toolchain controllers/{controller} --out pyaici/_wasm/{controller}.wasm"
    fetch = "-m pyaici.models --gguf"
    assert sorted(calls[:-1]) == sorted([build] * (controller is not None) + [fetch] * fetches)


@pytest.mark.parametrize(("arguments", "command"), [((), "build"), (("--serve",), "serve")])
def test_docs_installs_and_builds(
    arguments: tuple[str, ...], command: str, checkout: Path, tools: Path, recorded: Path
) -> None:
    done = run(checkout / "scripts" / "docs.sh", *arguments, path=tools)
    assert done.returncode == 0, done.stderr
    mkdocs = f"-m mkdocs {command} --strict --config-file scripts/docs/mkdocs.yml"
    assert logged(recorded) == [*installs("dev"), mkdocs]


def test_docs_refuses_unknown_arguments(checkout: Path, tools: Path) -> None:
    done = run(checkout / "scripts" / "docs.sh", "--server", path=tools)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "docs: unknown arguments: --server; the only option is --serve\n"


def test_scripts_set_one_thread_for_openmp(checkout: Path, tools: Path, recorded_vllm: Path) -> None:
    recorded = recorded_vllm
    for environment in (".venv", ".venv-vllm"):
        python = checkout / environment / "bin" / "python"
        program(python, f'[ "$1" = --version ] || [ "$1" = -c ] || echo "$OMP_NUM_THREADS" >>"{recorded}"')
    for script in ("test.sh", "run.sh", "hf.sh", "vllm.sh", "bench.sh"):
        assert run(checkout / "scripts" / script, path=tools).returncode == 0
        assert logged(recorded)[-1] == "1"


def test_devcontainer_runs_the_same_setup() -> None:
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["postCreateCommand"] == "./scripts/setup.sh hf,sdk,dev"
    assert "scripts/setup.sh hf,sdk,dev" in (ROOT / "scripts" / "test.sh").read_text()
    assert (ROOT / ".devcontainer" / settings["build"]["dockerfile"]).is_file()


def test_scripts_are_executable() -> None:
    for path in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]:
        assert path.stat().st_mode & stat.S_IXUSR, path
