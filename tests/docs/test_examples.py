"""The marked examples of all documents work, and every example is marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.client.control import Daemon
from pyaici.testing import Playground
from pyaici.testing.playground import PATIENT
from pyaici.toolchain import BuildError
from tests.thorough import thorough

from .blocks import DOCUMENTS, ROOT, SUFFIXES, blocks, matches, run_blocks

#: pages that other tests run: tests/pyaici/engines/vllm/test_document.py and test_server_pages.py
ELSEWHERE = {"docs/vllm.md", "docs/server.md"}
#: pages whose examples run with `--thorough` only, since other tests use the same parts: for the pages on C++
#: those in tests/controllers/sdk, for the others those in tests/pyaici/engines, cpc and evaluation
NIGHTLY = (
    *(f"docs/guide/cpp_{name}.md" for name in ("callbacks", "constraints", "forks", "grammars", "rows")),
    *("docs/guide/cpp_speed.md", "docs/guide/cpp_splices.md"),
    *("docs/cpc.md", "docs/evaluation.md", "docs/llama.md", "docs/transformers.md"),
)
#: the page whose commands and programs start their own daemons; those of all others connect to one
ALONE = "README.md"


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    """Plays the scripts of all pages."""
    with Playground() as playground:
        yield playground


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Starting a daemon takes a second, and it prepares the interpreters of scripts once."""
    with Daemon(workers=1, limits=PATIENT) as daemon:
        yield daemon


def pages() -> list[str]:
    """Returns the pages whose examples run here."""
    left_out = ELSEWHERE.union(() if thorough() else NIGHTLY)
    return [n for n, path in DOCUMENTS.items() if n not in left_out and any(b.runs for b in blocks(path))]


@pytest.mark.parametrize("name", pages())
def test_examples_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playground: Playground, daemon: Daemon
) -> None:
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    if name != ALONE:
        monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
    monkeypatch.chdir(tmp_path)
    # for child processes of examples, if the package is not installed
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run_blocks(DOCUMENTS[name], tmp_path, playground) > 0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_example_is_marked(name: str) -> None:
    """Complete programs run, others are marked as fragments. Unknown marks are errors."""
    for block in blocks(DOCUMENTS[name]):
        if block.language in {*SUFFIXES, "python", "console", "sh", "js"}:
            marked = block.runs or block.needs_server or block.client is not None
            assert marked != ("fragment" in block.words), (
                f"{block.where}: mark this block as run or as fragment"
            )
        unknown = [
            w
            for w in block.words
            if not re.fullmatch(r"run|server|answer|fragment|script|played|(controller|file|client)=.+", w)
        ]
        assert not unknown, f"{block.where}: unknown marks {unknown}"


# -- the runner itself must fail if an example fails ------------------------------------------------


def document(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "doc.md"
    path.write_text(text.replace("'''", "```"))
    return path


def test_python_blocks_share_variables_and_fail_at_their_line(tmp_path: Path) -> None:
    good = document(
        tmp_path, "'''python run\na = 1\n'''\ntext\n'''python run\nassert a == 1\n'''\n'''python\n1/0\n'''\n"
    )
    assert run_blocks(good, tmp_path) == 2
    bad = document(tmp_path, "text\n\n'''python run\na = 1\nassert a == 2\n'''\n")
    with pytest.raises(AssertionError) as caught:
        run_blocks(bad, tmp_path)
    assert caught.traceback[-1].lineno == 4  # counted from 0


def test_controller_blocks_are_built(tmp_path: Path) -> None:
    good = document(
        tmp_path,
        "'''c controller=none\n#include \"aici.h\"\nAICI_CONTROLLER\n'''\n"
        "'''python run\nassert open('none.wasm', 'rb').read(4) == b'\\0asm'\n'''\n"
        "'''console run\n$ ls *.wasm\nnone.wasm\n'''\n",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run_blocks(good, tmp_path) == 3
    with pytest.raises(BuildError, match="nonsense"):
        run_blocks(document(tmp_path, "'''cpp controller=none\nnonsense;\n'''\n"), tmp_path)


def test_file_blocks_are_written_for_commands(tmp_path: Path) -> None:
    text = "'''python file=hi.py\nprint(6 * 7)\n'''\n'''console run\n$ python hi.py\n42\n'''\n"
    assert run_blocks(document(tmp_path, text), tmp_path) == 2


def test_console_blocks_compare_output(tmp_path: Path) -> None:
    assert (
        run_blocks(document(tmp_path, "'''console run\n$ echo a; echo b\na\n...\n$ true\n'''\n"), tmp_path)
        == 1
    )
    for wrong in ("$ echo a\nb\n", "$ false\n", "$ echo surprise\n", "$ echo a\na\nb\n"):
        with pytest.raises(AssertionError, match=r"doc\.md:2"):
            run_blocks(document(tmp_path, f"'''console run\n{wrong}'''\n"), tmp_path)


def test_dots_in_expected_output_match_any_text() -> None:
    assert matches("one\n...\nend", "one\n2\n3\nend\n")
    assert matches("size ... kB", "size 12.3 kB")
    assert not matches("size ... kB", "size 12.3 MB")
    assert not matches("a.c", "abc")
    assert not matches("", "text")


ONE_SCRIPT = """'''python script
from aici import force, gen
async def main():
    print(await gen(regex="[a-z]+"))
    await force("!\\n?")
'''
"""


def test_scripts_are_played_in_both_languages_and_compared(tmp_path: Path, playground: Playground) -> None:
    other = """'''js script
import { force, gen } from "aici";
export async function main() {
  console.log(await gen({ regex: "[a-z]+" }));
  force("!\\n?");
}
'''
"""
    good = """'''text played
wish: abc def
text: "abc!\\n?"
log: abc
'''
"""
    assert run_blocks(document(tmp_path, ONE_SCRIPT + other + good), tmp_path, playground) == 3
    for old, new in (
        ("log: abc", "log: abd"),
        ("n?", "n."),
        ("log: abc", "error: wrong"),
        ("wish: abc", "wish: x"),
    ):
        with pytest.raises(AssertionError, match=r"doc\.md:2: (text|log|error) is"):
            run_blocks(document(tmp_path, ONE_SCRIPT + other + good.replace(old, new)), tmp_path, playground)
    with pytest.raises(AssertionError, match="a `played` block must follow this script"):
        run_blocks(document(tmp_path, ONE_SCRIPT), tmp_path, playground)
    with pytest.raises(AssertionError, match="a script must precede this block"):
        run_blocks(document(tmp_path, good), tmp_path, playground)
