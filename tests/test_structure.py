"""Imports agree with the tables in tests/structure.py, and every file says what it is."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import structure
from tests.measures import LIMITS, circles, measures, report
from tests.reach import python_files
from tests.structure import (
    FOREIGN,
    MATRIX,
    ROOT,
    TOP,
    about,
    cycle,
    foreign,
    graph,
    imported,
    listing,
    modules,
    nodes_in,
    statements_in,
    table,
    top_level,
)


def test_imports_equal_matrix() -> None:
    """MATRIX must also have no unused entries."""
    allowed = {name: set(others.split()) for name, others in MATRIX.items()}
    found = graph()
    assert found.keys() == allowed.keys()
    wrong = {name: (found[name] - allowed[name], allowed[name] - found[name]) for name in found}
    assert not {name: both for name, both in wrong.items() if any(both)}, "(not allowed, not used)"


def test_imports_of_top_level_folders_equal_top() -> None:
    assert top_level() == {name: set(others.split()) for name, others in TOP.items()}


def test_imports_have_no_cycles() -> None:
    assert cycle(graph()) == []


def test_cycles_are_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b"}, "b": set()}) == []


def test_there_is_not_more_to_understand_than_before() -> None:
    more = {name: (value, LIMITS[name]) for name, value in measures().items() if value > LIMITS[name]}
    assert not more, "(now, at most): see tests/measures.py"


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c", "a"}, "c": {"d"}, "d": {"e"}, "e": {"c", "f"}, "f": set(), "g": {"a"}}
    assert sorted(circles(edges)) == [["a", "b"], ["c", "d", "e"]]


def test_relative_imports_are_found() -> None:
    found = imported(Path("pyaici/toolchain/interpreters.py"))
    assert {"pyaici.toolchain.flags", "pyaici.toolchain.zig", "pyaici.toolchain.languages"} <= found
    assert "pyaici.toolchain.interpreters" in imported(Path("pyaici/toolchain/__init__.py"))


def test_imported_names_exist() -> None:
    """Also those of programs and tests that run elsewhere, such as beside vLLM."""
    known, wrong = python_files(), []
    for path in known.values():
        for node in statements_in(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module in known:
                names = defined_names(known[node.module])
                wrong += [
                    f"{path}: {node.module}.{alias.name}"
                    for alias in node.names
                    if alias.name not in names and f"{node.module}.{alias.name}" not in known
                ]
    assert wrong == []


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Returns the names that a module has; also its strings, which `__getattr__` may look for."""
    found = set[str]()
    for node in nodes_in(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)


@pytest.mark.parametrize("package", FOREIGN)
def test_imports_of_third_party_packages_equal_foreign(package: str) -> None:
    assert foreign()[package] == set(FOREIGN[package].split())


def test_every_file_of_python_says_what_it_is() -> None:
    assert [path for path in modules().values() if (ROOT / path).stat().st_size and not about(path)] == []


def test_command_prints_the_files_of_folders() -> None:
    command = [sys.executable, "-m", "tests.structure", "--files", "aicirt/vocab", "controllers/cpp"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == listing([Path("aicirt/vocab"), Path("controllers/cpp")]) + "\n"
    assert [line for line in printed.splitlines() if line.startswith("  trie.py: ")]
    assert {line.partition(":")[0] for line in listing().splitlines()} > {"aicirt/vocab", "pyaici", "."}


def test_command_prints_every_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which knows the imports of all files already."""
    monkeypatch.setattr(sys, "argv", ["structure"])
    structure.main()
    printed = capsys.readouterr().out
    assert printed.splitlines() == [*table(), "", *report()]
    assert "aicirt.worker" in printed


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.hpp", "// x.hpp - a list,\n// by name. It grows.\n#pragma once\n", "A list, by name"),
        ("x.cpp", "#include <map>\n\n// Maximum number.\n", ""),
        ("x.js", "/** Waits, e.g. A.\n *\n * Prompt: hello.\n */\n", "Waits, e.g. A"),
        ("x.sh", "#!/bin/sh\n# Writes a.json and b.png. Its end:\nexit\n", "Writes a.json and b.png"),
        ("x.html", "<!doctype html>\n<!-- The page. -->\n", "The page"),
        ("x.py", '"""x: counts. a.py too."""\n', "Counts"),
    ],
)
def test_description_is_the_first_sentence(name: str, text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert about(tmp_path / name) == expected
