"""Starters of `aici new`, created, built, checked, run with a model and tested by an installed wheel.

Every language takes several processes of a second each. By default there is one of each kind, beside the
recorded one in C++. tests/docs/test_languages.py builds all of them, and tests/test_packaging.py finds the
parts of all languages in the wheel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.runners.compiled import share
from pyaici.cli.new import LANGUAGES, SCRIPTS
from pyaici.testing.playground import PATIENT
from pyaici.toolchain import build_controller, controller_folders
from tests.distribution import UV, run
from tests.languages import compiler_or_skip
from tests.thorough import also

MODEL = ("--engine", "llama", "--no-chat", "--max-tokens", "12", "--prompt", "2 + 2 =")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("starters")


@pytest.fixture(scope="module")
def aici(built_wheel: Path, folder: Path) -> Iterator[Callable[..., str]]:
    """Runs the program of the wheel, which is installed in a new environment with two of its extras.

    All commands connect to one daemon, which the program has started.
    """
    binaries = folder / "env" / "bin"
    run(UV, "venv", "--quiet", "--python", sys.executable, "env", cwd=folder)
    wheel = f"pyaici[llama,sdk] @ {built_wheel.as_uri()}"
    install = (UV, "pip", "install", "--quiet", "--python", binaries / "python")
    run(*install, wheel, "argcomplete", cwd=folder)
    env = {"PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    place = run("python", "-c", "import pyaici; print(pyaici.__file__)", cwd=folder, env=env)
    assert place.startswith(str(folder))
    env["AICI_SOCKET"] = str(folder / "aici.sock")
    command = [binaries / "aici", "runtime", "--workers", "1", "--store", share(folder / "store")]
    for name, value in PATIENT.items():
        command += ["--limit", f"{name}={value}"]
    with subprocess.Popen(command, env=os.environ | env, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stderr is not None and any("listening on" in line for line in daemon.stderr)
            yield lambda *arguments: run("aici", *arguments, cwd=folder, env=env)
        finally:
            daemon.terminate()


def test_shells_complete_commands(aici: Callable[..., str], folder: Path) -> None:
    """Shells call the program as docs/guide/building.md says."""
    found = folder / "completions"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": "aici ru", "COMP_POINT": "7", "IFS": "\013"}
    run(folder / "env" / "bin" / "aici", cwd=folder, env=asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(found)})
    assert {word.strip() for word in found.read_text().split("\013")} == {"run", "runtime"}


def test_list(aici: Callable[..., str], checkout: Path) -> None:
    listed = aici("list")
    names = [controller.name for controller in controller_folders(checkout)]
    assert all(re.search(rf"^  {name} ", listed, re.MULTILINE) for name in names)
    assert re.search(r"^grammars, .*\bc\.y\b", listed, re.MULTILINE)


@pytest.fixture(scope="module")
def transcript(aici: Callable[..., str]) -> str:
    """The recording of a run of the starter in C++ with a model. Starters of all languages behave alike."""
    aici("new", "recorded", "--lang", "cpp")
    aici("build", "recorded")
    shown = aici("run", "recorded.wasm", "--arg", "aeiou", "--record", "recorded.json", *MODEL)
    answer = shown.split("2 + 2 =")[1].split("|")[0]
    assert answer.strip()
    assert not re.search("[aeiou]", answer, re.IGNORECASE)
    assert re.search(r"\d+ of 49152 tokens are allowed", shown)
    assert "12 tokens sampled, 0 forced" in shown
    return "recorded.json"


@pytest.mark.parametrize("language", ["c", *also(*(name for name in LANGUAGES if name != "c"))])
def test_controller(language: str, aici: Callable[..., str], folder: Path, transcript: str) -> None:
    """The replay compares each mask of the model's whole vocabulary, and the log."""
    name = f"my_{language}"
    aici("new", name, "--lang", language)
    # the other compilers come with the package; where these must exist, the command itself fails without them
    if language in ("rust", "assemblyscript") and not os.environ.get("AICI_LANGUAGES"):
        with compiler_or_skip():
            build_controller(folder / name, folder / "first.wasm")
    assert "accepted" in aici("build", name)
    assert "aici_mid_process" in aici("check", f"{name}.wasm")
    assert f"{transcript}: ok" in aici("test", f"{name}.wasm", "--transcript", transcript)


@pytest.mark.parametrize("language", ["python", *also("javascript")])
def test_script(language: str, aici: Callable[..., str], folder: Path) -> None:
    script, tests = f"my_{language}/{SCRIPTS[language]}", f"my_{language}/tests.toml"
    aici("new", f"--{language}", f"my_{language}")
    assert aici("check", script) == f"{script}: accepted\n"
    assert f"{tests}: 2 cases, 0 failed" in aici("test", script, "--transcript", tests)
    shown = aici("run", script, *MODEL)
    assert re.search(r"«Once upon a time there was a »(cat|dog)« called »[A-Z][a-z]+", shown)
