"""Follows the imports among all Python files, from a test to what it runs."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyaici
from tests.structure import ROOT, files, imports_in, nodes_in

#: the folders whose files are modules that others import
_IMPORTABLE = ("aicirt", "pyaici", "lab", "harness", "tests")


@cache
def python_files() -> dict[str, Path]:
    """Returns the Python files that can be imported, by dotted name, relative to the root."""
    found = {}
    for path in files("*.py"):
        if path.parts[0] in _IMPORTABLE and "templates" not in path.parts:
            parts = path.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def test_files() -> tuple[Path, ...]:
    """Returns all files with tests."""
    return tuple(path for path in python_files().values() if path.name.startswith("test_"))


@cache
def _names(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the names that a file imports, and its strings, which may name what it starts or loads.

    A public name counts as the module that it comes from, since `pyaici` itself imports it at its first use.
    """
    if path == Path("pyaici/__init__.py"):
        return frozenset({"aicirt"}), frozenset()
    nodes = nodes_in(ast.parse((ROOT / path).read_text()))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    strings = frozenset(value for value in constants if isinstance(value, str))
    homes = {f"pyaici.{name}": module for name, module in pyaici._HOME_OF.items()}
    return frozenset(homes.get(name, name) for name in imports_in(nodes, path)), strings


@cache
def _plugins() -> frozenset[str]:
    """Returns the modules that vLLM loads, which the package's metadata names."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return frozenset(entry.partition(":")[0] for group in groups.values() for entry in group.values())


@cache
def neighbours(path: Path) -> frozenset[Path]:
    """Returns the files that a file imports, or starts as programs, with the packages that contain them."""
    known = python_files()
    imported, strings = _names(path)
    started = {name for text in strings for name in (text, f"{text}.__main__") if name in known}
    loaded = {text.rpartition(".")[0] for text in strings} & known.keys()
    plugins = _plugins() if any(name.partition(".")[0] == "vllm" for name in imported) else frozenset()
    beside = {path.with_name(text) for text in strings if text.endswith(".py") and "/" not in text}
    found = beside & set(known.values())
    for name in imported | started | loaded | plugins:
        module = name if name in known else name.rpartition(".")[0]
        while module in known:
            found.add(known[module])
            module = module.rpartition(".")[0]
    return frozenset(found - {path})


def distances(begin: Iterable[Path], within: str = "") -> dict[Path, int]:
    """Returns each file that is reached from some files, with the least number of imports on the way.

    With `within`, follows only imports of files in this folder, and also returns what these import.
    """
    found = dict.fromkeys(begin, 0)
    front = list(found)
    while front:
        following = []
        for path in front:
            if found[path] and within and path.parts[0] != within:
                continue
            for other in neighbours(path):
                if other not in found:
                    found[other] = found[path] + 1
                    following.append(other)
        front = following
    return found


def conftests(path: Path) -> list[Path]:
    """Returns the files with the fixtures that a test file may use."""
    return [folder / "conftest.py" for folder in path.parents if (ROOT / folder / "conftest.py").is_file()]
