"""Bundled grammars as arguments, by name."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from pyaici.bundled import bundled_grammars, find_grammar
from pyaici.engines.hf.program import add_options
from pyaici.engines.options import read_request

ROOT = Path(__file__).resolve().parents[2]


def argument(*words: str) -> str | bytes:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_request(parser.parse_args([*words, "--prompt", "x"])).arg


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_grammar_of_the_source_tree_has_a_unique_name() -> None:
    files = sorted(ROOT.glob("controllers/*/grammars/*"))
    assert len({path.name for path in files}) == len(files)
    assert sorted(bundled_grammars().values()) == files
    assert {"c.y", "json.y", "sql.y", "arithmetic.y"} <= set(bundled_grammars())
    assert find_grammar("none.y") is None


def test_argument_is_a_file_or_else_a_bundled_grammar(here: Path) -> None:
    assert argument("--arg", "@json.y") == bundled_grammars()["json.y"].read_text().removesuffix("\n")
    (here / "json.y").write_text("mine\n")
    assert argument("--arg", "@json.y") == "mine"
    with pytest.raises(ValueError, match=r"--arg: cannot read 'none\.y', the file after @: No such file"):
        argument("--arg", "@none.y")
