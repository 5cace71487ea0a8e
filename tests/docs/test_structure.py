"""docs/structure.md names every source file, and only files that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "structure.md"
#: files with a line of their own; tests mirror the packages and are not listed one by one
SOURCES = re.compile(
    r"(aicirt|pyaici|bench|harness|controllers|scripts|\.ci|\.devcontainer|docs)/.*|[^/]+\.(py|toml|md)|LICENSE"
)
#: "- `file`: what it is", or several files that are one thing
LINE = re.compile(r"^- (`[^`]+`(?:, `[^`]+`)*): .+$", re.MULTILINE)


def listed() -> list[str]:
    return [name for names in LINE.findall(DOCUMENT.read_text()) for name in re.findall(r"`([^`]+)`", names)]


def source_files() -> set[str]:
    """Files that git tracks or would add, except tests and empty `__init__.py`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {
        name
        for name in names
        if SOURCES.fullmatch(name) and (ROOT / name).is_file() and (ROOT / name).stat().st_size > 0
    }


def test_every_source_file_has_its_line() -> None:
    missing = sorted(source_files() - set(listed()))
    proposals = "\n".join(f"- `{name}`: {first_line(ROOT / name)}" for name in missing)
    assert not missing, f"docs/structure.md lacks:\n{proposals}"


def first_line(path: Path) -> str:
    """What the file says of itself, if it does."""
    found = re.search(r'^(?:"""|//!? |/\* |# )(.+)$', path.read_text(), re.MULTILINE)
    return found[1].rstrip('"*/ .') if found else ""


def test_every_listed_file_exists() -> None:
    for name in listed():
        assert (ROOT / name).is_file(), f"docs/structure.md names {name}"


def test_no_file_has_two_lines() -> None:
    names = listed()
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_name_in_the_text_exists() -> None:
    """Paths and dotted names between backquotes, such as `pyaici.runtime.Runtime.begin_step`."""
    text = DOCUMENT.read_text()
    for name in re.findall(r"`([\w./+-]+)`", text):
        if "/" in name:
            assert (ROOT / name).exists(), f"docs/structure.md names {name}"
        elif re.match(r"(aicirt|pyaici|bench)\.[\w.]+$", name):
            assert resolves(name), f"docs/structure.md names {name}"


def resolves(dotted: str) -> bool:
    """Is there a module of this name, or a module that defines the rest of it?

    Read, not imported: an engine's module needs the engine.
    """
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:split])
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if module.is_dir() and split == len(parts):
            return True
        if file.is_file():
            text = file.read_text()
            defined = all(
                re.search(rf"\b(class|def) {re.escape(p)}\b|^ *{re.escape(p)}\b.*=", text, re.M)
                for p in parts[split:]
            )
            exported = (
                re.search(rf"\bimport\b.*\b{re.escape(parts[split])}\b", text) if split < len(parts) else None
            )
            return defined or exported is not None
    return False


def test_the_resolver_can_say_no() -> None:
    assert resolves("pyaici.build")
    assert resolves("pyaici.build.toolchain.Toolchain.run")
    assert not resolves("pyaici.build.toolchain.Toolchain.unlock")
    assert not resolves("pyaici.nowhere")
