"""The SDK's public headers, ``aici/*``, are apart from its internal ones, ``aici/detail/*``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.toolchain import find_sdk
from tests.controllers.conftest import CONTROLLERS

ROOT = CONTROLLERS.parent
INCLUDE = find_sdk().include
DETAIL = INCLUDE / "aici" / "detail"
HEADERS = sorted(INCLUDE.rglob("*.h*"))
PUBLIC = [path for path in HEADERS if DETAIL not in path.parents]
INTERNAL = [path for path in HEADERS if DETAIL in path.parents]
_SOURCES = {".c", ".cpp", ".h", ".hpp"}
#: types, concepts and functions at the scope of a namespace, whose contents are not indented
_DECLARED = re.compile(
    r"^(?:(?:class|struct|enum class|concept|using) (\w+)|(?:inline |constexpr )*[\w:<>*&]+ (\w+)\()",
    re.MULTILINE,
)


def _users() -> Iterator[Path]:
    """Files that show how to write a controller: bundled controllers, starters, and documentation."""
    for folder in CONTROLLERS.iterdir():
        if folder.name != "sdk":
            yield from (path for path in folder.rglob("*") if path.suffix in _SOURCES)
    yield from (path for path in (ROOT / "pyaici/cli/templates").rglob("*") if path.suffix in _SOURCES)
    yield ROOT / "README.md"
    yield from (ROOT / "docs").rglob("*.md")


def _includes(path: Path) -> list[Path]:
    """The headers of the SDK that a file includes."""
    return [INCLUDE / name for name in re.findall(r'^#include "(aici[^"]*)"', path.read_text(), re.MULTILINE)]


def _code(path: Path) -> str:
    """A header without comments and includes."""
    return re.sub(r"//.*|^#include.*", "", path.read_text(), flags=re.MULTILINE)


def test_controllers_starters_and_docs_use_only_public_headers() -> None:
    users = list(_users())
    assert {"cpp", "regex", "docs"} <= {path.parent.name for path in users}
    assert [path for path in users if re.search(r'#include *["<]aici/detail/', path.read_text())] == []


def test_included_headers_exist() -> None:
    missing = [(path, name) for path in HEADERS for name in _includes(path) if not name.is_file()]
    assert missing == []


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: str(path.relative_to(INCLUDE)))
def test_public_header_uses_each_internal_header_that_it_includes(path: Path) -> None:
    code = _code(path)
    for header in _includes(path):
        if header in INTERNAL:
            names = {type_ or function for type_, function in _DECLARED.findall(_code(header))}
            assert names
            assert any(re.search(rf"\b{name}\b", code) for name in names), f"{header} declares {names}"


def test_internal_headers_are_needed_by_public_ones() -> None:
    """Other internal headers belong in ``controllers/sdk/src``."""
    reached: set[Path] = set()
    waiting = list(PUBLIC)
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _includes(path)
    assert set(INTERNAL) - reached == set()
