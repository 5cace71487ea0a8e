"""docs/guide/other_languages.md: the examples in Rust and AssemblyScript, and the table of languages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyaici.cli.new import LANGUAGES, create
from pyaici.testing import Playground
from pyaici.toolchain import build_controller
from tests.languages import compiler_or_skip

from .blocks import blocks

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guide" / "other_languages.md"


def example(language: str) -> str:
    (text,) = [block.text for block in blocks(DOCUMENT) if block.language == language]
    return text


def build(folder: Path) -> Path:
    with compiler_or_skip():
        return build_controller(folder, folder.with_suffix(".wasm")).path


def test_rust_example_works(tmp_path: Path) -> None:
    create(tmp_path / "parentheses", "rust")
    (tmp_path / "parentheses" / "src" / "lib.rs").write_text(example("rust"))
    module = build(tmp_path / "parentheses")
    with Playground() as playground:
        assert playground.play(module, "f(a, (b)) - c) + d").text == "f(a, (b)) - c + d"
        assert playground.play(module, "f(a, (b)").finish_reason == "length"
    cargo = shutil.which("cargo")
    assert cargo, "cargo has built the module"
    tested = subprocess.run(
        [cargo, "test", "--offline"],
        cwd=tmp_path / "parentheses",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "test only_balanced_texts_may_end ... ok" in tested.stdout, tested.stdout + tested.stderr
    assert tested.returncode == 0


def test_assemblyscript_example_works(tmp_path: Path) -> None:
    create(tmp_path / "once", "assemblyscript")
    (tmp_path / "once" / "main.ts").write_text(example("typescript"))
    module = build(tmp_path / "once")
    with Playground() as playground:
        assert playground.play(module, "Mississippi.").text == "Missip."


def sizes() -> dict[str, float]:
    """Returns the kB of the starters in the table."""
    rows = re.findall(r"^\| [\w+]+ \| `(\w+)` \| .*? \| (\d+) kB \|", DOCUMENT.read_text(), re.MULTILINE)
    return {language: float(size) for language, size in rows}


def test_table_has_all_languages() -> None:
    assert sorted(sizes()) == sorted(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_table_has_the_sizes_of_starters(language: str, tmp_path: Path) -> None:
    """Sizes differ somewhat between versions of a compiler."""
    create(tmp_path / "starter", language)
    size = build(tmp_path / "starter").stat().st_size / 1000
    print(f"size.starter.{language} {size:.1f} kB")
    assert size == pytest.approx(sizes()[language], rel=0.25)
