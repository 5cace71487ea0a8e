"""Imports agree with the tables in tests/structure.py, and docs/structure.md is up to date."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.structure import DOCUMENT, FOREIGN, MATRIX, ROOT, cycle, document, foreign, graph, table


def test_imports_equal_matrix() -> None:
    """MATRIX must also have no unused entries."""
    allowed = {name: set(others.split()) for name, others in MATRIX.items()}
    found = graph()
    assert found.keys() == allowed.keys()
    wrong = {name: (found[name] - allowed[name], allowed[name] - found[name]) for name in found}
    assert not {name: both for name, both in wrong.items() if any(both)}, "(not allowed, not used)"


def test_imports_have_no_cycles() -> None:
    assert cycle(graph()) == []


def test_cycles_are_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b"}, "b": set()}) == []


@pytest.mark.parametrize("package", FOREIGN)
def test_imports_of_third_party_packages_equal_foreign(package: str) -> None:
    assert foreign()[package] == set(FOREIGN[package].split())


def test_list_of_files_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.structure --write"


def test_command_prints_every_package() -> None:
    command = [sys.executable, "-m", "tests.structure"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == list(table())
    assert "aicirt.worker" in printed
