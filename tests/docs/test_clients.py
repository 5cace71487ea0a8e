"""README's commands in a bare environment, and the programs of pages that need packages of others."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distribution import UV, run
from tests.pyaici.server.serving import Serving
from tests.thorough import thorough

from .blocks import DOCUMENTS, Block, blocks

#: what the packages of others do is in their hands. test_server_pages.py sends requests of the same forms
#: with OpenAI's client, and runs README's programs; tests/test_packaging.py installs and starts the server
nightly = pytest.mark.thorough

PROGRAMS = [block for page in DOCUMENTS.values() for block in blocks(page) if block.client is not None]
#: the server's address in README and on the pages
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the packages of all programs, and nothing of this project."""
    folder = tmp_path_factory.mktemp("clients")
    run(UV, "venv", "--quiet", "--python", "3.11", folder / "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    packages = sorted({str(block.client) for block in PROGRAMS})
    run(UV, "pip", "install", "--quiet", "--python", python, *packages, cwd=folder)
    return python


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@nightly
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=[block.where for block in PROGRAMS])
def test_programs_of_other_clients_work(
    program: Block, python: Path, server: Serving, tmp_path: Path
) -> None:
    assert ADDRESS in program.text
    file = tmp_path / "program.py"
    file.write_text(program.text.replace(ADDRESS, server.url))
    run(python, "-I", file, cwd=tmp_path)


@contextlib.contextmanager
def serving(environment: Path, folder: Path) -> Iterator[str]:
    """Yields the address of `aici serve` of an environment, on a free port."""
    variables = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "HOME": str(Path.home())}
    command = [environment / "bin" / "aici", "serve", "--port", "0", "--kv-cache-tokens", "1024"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=variables) as server:
        assert server.stderr is not None
        try:
            lines = (re.search(r"running on (http://\S+)", line) for line in server.stderr)
            yield next(found[1] for found in lines if found)
        finally:
            server.terminate()


def first_screen() -> tuple[str, str, str]:
    """Returns what README's first screen has: the command that installs the package, and two programs."""
    found = list(blocks(DOCUMENTS["README.md"]))
    install = next(block for block in found if block.language == "bash")
    first, second = [block for block in found if block.needs_server and block.language == "python"]
    assert install.line < first.line < 40, "the first screen"
    made, installed = install.text.splitlines()
    assert made == "python3 -m venv env && . env/bin/activate"
    assert "`aici serve` fetches a small model" in DOCUMENTS["README.md"].read_text()
    return installed, first.text, second.text


def results(programs: str) -> list[str]:
    """Returns what programs print by their comments."""
    return re.findall(r"^print\(.*?\)  # (.*)$", programs, re.MULTILINE)


def test_first_screen_shows_how_to_install_and_what_two_programs_print() -> None:
    installed, *programs = first_screen()
    assert re.fullmatch(r"pip install '\.\[llama,server\]' openai", installed)
    assert [len(results(program)) for program in programs] == [1, 1]


@nightly
@pytest.mark.slow
def test_json_takes_three_commands_in_a_bare_environment(built_wheel: Path, tmp_path: Path) -> None:
    """The commands of README's first screen: installs the package, starts the server, runs the program.

    The wheel takes the place of the checkout, from which pip would build it. Only the long form installs with
    pip, which takes three times as long as uv.
    """
    installed, *programs = first_screen()
    run(UV, "venv", "--quiet", "--seed", "--python", sys.executable, "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    installer = [python, "-m", "pip"] if thorough() else [UV, "pip"]
    others = [] if thorough() else ["--python", python]
    program, module, *arguments = shlex.split(installed)
    assert (program, module) == ("pip", "install")
    wanted = [word.replace(".[", f"{built_wheel}[") for word in arguments]
    run(*installer, module, "--quiet", *others, *wanted, cwd=tmp_path)
    file = tmp_path / "ask.py"
    with serving(tmp_path / "env", tmp_path) as url:
        file.write_text("\n".join(programs).replace(ADDRESS, url))
        printed = run(python, "-I", file, cwd=tmp_path)
    assert printed.splitlines() == [line for program in programs for line in results(program)]
