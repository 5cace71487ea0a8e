"""Runs the marked code blocks of the documents.

The words after a block's language mark its kind:

    ```cpp controller=digits      a controller (also c, zig), built to digits.wasm
    ```python file=test_it.py     a file with this name, for later commands
    ```python run                 a program; the blocks of a document share their variables
    ```console run                commands after "$ ", each with its output; "..." stands for any lines
    ```sh server                  commands for a running server; also `python server`
    ```python client=instructor   the same, with this package installed; test_clients.py runs it
    ```json answer                the output of the preceding commands; "..." stands for any text
    ```python script, js script   a script, whose result is in ```text played (scripts.py)
    ```cpp fragment               incomplete code, which does not run

test_server_pages.py runs the blocks that need a server, test_examples.py all others. The blocks of a document
run in order in one folder, in which its controllers are built before the first block runs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.system.forked import run_forked
from pyaici.testing import Playground
from pyaici.toolchain import build_controller

from .scripts import play

ROOT = Path(__file__).resolve().parents[2]
#: the documents of the project, by their paths in it
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}
SUFFIXES = {"cpp": ".cpp", "c": ".c", "zig": ".zig"}
#: what only a shell understands
_SHELL = re.compile(r"[|&;<>$`*?\n]")
_FENCE = re.compile(r"^ *```(?P<info>[^`\n]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is the number of its first line of text."""

    document: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        return f"{self.document.name}:{self.line}"

    @property
    def controller(self) -> str | None:
        """The name of the controller, if the block is one."""
        return self._value("controller")

    @property
    def file(self) -> str | None:
        """The name of the file, if the block is one."""
        return self._value("file")

    @property
    def client(self) -> str | None:
        """The package that the block needs in an environment of its own, with a server."""
        return self._value("client")

    @property
    def needs_server(self) -> bool:
        """Whether the block runs with a server."""
        return "server" in self.words

    @property
    def runs(self) -> bool:
        if {"run", "script", "played"} & set(self.words):
            return True
        return self.controller is not None or self.file is not None

    def _value(self, mark: str) -> str | None:
        return next((w.partition("=")[2] for w in self.words if w.startswith(f"{mark}=")), None)


def blocks(document: Path) -> Iterator[Block]:
    """Yields all fenced blocks in order."""
    text = document.read_text()
    for found in _FENCE.finditer(text):
        language, *words = found["info"].split() or [""]
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(document, line, language, tuple(words), found["text"])


def run_blocks(document: Path, folder: Path, playground: Playground | None = None) -> int:
    """Runs the marked blocks of a document in `folder`; returns their number. Scripts need a `playground`.

    Raises AssertionError, BuildError or the exception of a program. Its message or traceback has the place in
    the document.
    """
    variables: dict[str, object] = {"__name__": "__main__"}
    found = [block for block in blocks(document) if block.runs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each build is a process that takes a second
        list(pool.map(lambda block: _build(block, folder), (block for block in found if block.controller)))
    for block in reversed(found):  # a page may show what a program prints before it shows the program
        if block.file:
            (folder / block.file).write_text(block.text)
    scripts: list[Block] = []
    for block in found:
        if "script" in block.words:
            scripts.append(block)
        elif "played" in block.words:
            assert playground is not None
            play(playground, scripts, block)
            scripts = []
        elif not block.controller:
            _run(block, folder, document, variables)
    assert not scripts, f"{scripts[0].where}: a `played` block must follow this script"
    return len(found)


def _run(block: Block, folder: Path, document: Path, variables: dict[str, object]) -> None:
    if block.file:
        (folder / block.file).write_text(block.text)
    elif block.language == "python":
        # keeps the line numbers of the document, so that a traceback refers to them
        code = compile("\n" * (block.line - 1) + block.text, str(document), "exec")
        exec(code, variables)
    elif block.language == "console":
        _run_console(block, folder)
    else:
        raise AssertionError(f"{block.where}: cannot run blocks in {block.language!r}")


def _build(block: Block, folder: Path) -> None:
    source = folder / f"{block.controller}{SUFFIXES[block.language]}"
    source.write_text(block.text)
    build_controller(source, folder / f"{block.controller}.wasm")


def _run_console(block: Block, folder: Path) -> None:
    for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = session.partition("\n")
        done = run_shell(command, folder)
        assert matches(expected, done.stdout), f"{block.where}: `{command}` printed\n{done.stdout}"
        assert done.returncode == 0 or expected, (
            f"{block.where}: `{command}` ended with status {done.returncode}"
        )


def run_shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs commands in `folder`. `stdout` of the result has the output of both streams.

    A single `aici` without redirections is forked: importing what it needs would take a second.
    """
    if commands.startswith("aici ") and not _SHELL.search(commands.rstrip()):
        return run_forked("pyaici.cli", *shlex.split(commands)[1:], cwd=folder, merged=True)
    # uses the commands of this tree and this environment, whether they are installed or not
    aici = f'aici() {{ python -m pyaici.cli "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", aici + commands],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def matches(expected: str, printed: str) -> bool:
    """Compares output with a pattern: a line "..." stands for any lines, "..." in a line for any text."""
    parts = [re.escape(line) for line in expected.strip().split("\n")]
    pattern = "\n".join(parts).replace(r"\.\.\.", ".*?")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
