"""The architecture is what tests/structure.py says: who imports whom, and docs/structure.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.structure import DOCUMENT, FOREIGN, MATRIX, ROOT, cycle, document, foreign, graph, table


def test_packages_import_what_matrix_allows() -> None:
    """MATRIX has no more than is used either, so that it stays the truth."""
    allowed = {name: set(others.split()) for name, others in MATRIX.items()}
    found = graph()
    assert found.keys() == allowed.keys()
    wrong = {name: (found[name] - allowed[name], allowed[name] - found[name]) for name in found}
    assert not {name: both for name, both in wrong.items() if any(both)}, "(not allowed, not used)"


def test_no_packages_import_each_other() -> None:
    assert cycle(graph()) == []


def test_cycles_are_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b"}, "b": set()}) == []


@pytest.mark.parametrize("package", FOREIGN)
def test_only_some_packages_import_libraries(package: str) -> None:
    assert foreign()[package] == set(FOREIGN[package].split())


def test_list_of_files_is_fresh() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.structure --write"


def test_command_prints_every_package() -> None:
    command = [sys.executable, "-m", "tests.structure"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == list(table())
    assert "aicirt.worker" in printed
