"""The comparison of a vLLM with the names that AICI relies on."""

from __future__ import annotations

import ast
import contextlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.engines.vllm import plugin, versions
from pyaici.engines.vllm.plugin import (
    Sources,
    differences,
    find_by_import,
    read_table,
    version_problem,
)
from tests import coupling

FILES = {
    "vllm/__init__.py": "from .things import Thing as Renamed\n__version__ = '1'\n",
    "vllm/things.py": """
import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

try:
    from vllm.base import Base
except ImportError:
    Base = object

if TYPE_CHECKING:
    Never = None
else:
    limit: int = 3


class Thing(Base):
    shared = 1

    def __init__(self, size, *, colour=None):
        self.size, self.weight = size, 2
        with open("/dev/null"):
            self.deep = 3

    @property
    def area(self):
        return 1

    @staticmethod
    def make(size):
        return size

    @classmethod
    def of(cls, other):
        return other

    async def run(self, first, second=1, *rest, third=3, **more):
        pass


@dataclass
class Named:
    name: str


@dataclass
class Record(Named):
    count: int = 0
    tags: list = field(default_factory=list)
    known: ClassVar[int] = 1
    hidden: int = field(init=False)


class Pair(NamedTuple):
    left: int
    right: int = 1


class Colour(enum.Enum):
    RED = 1


class Shape(ABC):
    @abstractmethod
    def draw(self, where): ...

    @abstractmethod
    def move(self): ...


class Square(Shape):
    def draw(self, where): ...


def function(a, b, c=1):
    pass
""",
    "vllm/deep/__init__.py": "from ..things import function\n",
    "vllm/base.py": """
class Base:
    inherited: int

    def below(self, x):
        self.found = x
""",
}

HAVE = """
vllm
    Renamed __version__
vllm.things
    limit function(a, b)
    Thing
        __init__(size, *, colour)
        run(first, second, *, third, fourth)
        make(size)
        of(other)
        below(x)
        shared size weight deep area inherited found
    Record
        __init__(name, *, count,
                 tags)
        name count tags known hidden
    Pair
        __init__(left, right)
    Colour
        RED
    Shape
        draw(where)
        move(...)
        abstract draw move
    Square
        draw(where)
        abstract move
vllm.deep
    function(a, ...)
    function(*, a, b, c)
"""

LACK = {
    "vllm.gone\n    x": "vllm.gone.x is missing",
    "vllm.things\n    nothing": "vllm.things.nothing is missing",
    "vllm.things\n    limit()": "vllm.things.limit is not a function",
    "vllm.things\n    function(b)": "vllm.things.function takes (a, b, c=...), not (b)",
    "vllm.things\n    function(a)": "not (a)",
    "vllm.things\n    function(a, b, *, d)": "not (a, b, *, d)",
    "vllm.things\n    Thing\n        gone size": "vllm.things.Thing.gone is missing",
    "vllm.things\n    Thing\n        area()": "vllm.things.Thing.area is not a function",
    "vllm.things\n    Thing\n        __init__(colour)": "Thing.__init__ takes (size, colour=...), not",
    "vllm.things\n    Thing\n        of(cls, other)": "not (cls, other)",
    "vllm.things\n    Record\n        __init__(count)": "not (count)",
    "vllm.things\n    Record\n        __init__(*, count)": "not (*, count)",
    "vllm.things\n    Record\n        __init__(name, *, hidden)": "not (name, *, hidden)",
    "vllm.things\n    Shape\n        abstract draw": "vllm.things.Shape has other abstract methods: move",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@contextlib.contextmanager
def importable(package: Path) -> Iterator[None]:
    """Makes `import vllm` import the package, also if another vllm has been imported."""
    saved = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in saved:
        del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        yield
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules |= saved


@pytest.fixture(params=["folder", "wheel", "import"])
def find(request: pytest.FixtureRequest, package: Path) -> Iterator[Any]:
    """Each way to find a name."""
    if request.param == "folder":
        yield Sources(package / "vllm").find
    elif request.param == "wheel":
        with zipfile.ZipFile(package / "vllm.whl", "w") as wheel:
            for name in FILES:
                wheel.write(package / name, name)
        yield Sources(zipfile.Path(package / "vllm.whl", "vllm/")).find
    else:
        with importable(package):
            yield find_by_import


def test_existing_names_are_found(find: Any) -> None:
    assert differences(find, read_table(HAVE)) == []


@pytest.mark.parametrize(
    ("entry", "line"), LACK.items(), ids=[entry.split("\n")[-1].strip() for entry in LACK]
)
def test_a_difference_is_a_line(find: Any, entry: str, line: str) -> None:
    (found,) = differences(find, read_table(entry))
    assert line in found


@pytest.mark.parametrize("version", ["0.32.0", "0.32.9", "0.32.0+cpu", "0.32.1rc1"])
def test_versions_in_the_range_are_accepted(version: str) -> None:
    assert version_problem(version) is None


@pytest.mark.parametrize("version", ["0.31.9", "0.99.0", "1.0", "0.1.dev1+g1234", "dev"])
def test_other_versions_have_a_problem(version: str) -> None:
    assert f"this is vLLM {version}, and AICI supports the versions {versions.VERSIONS}" in str(
        version_problem(version)
    )


def test_the_table_has_all_imports_of_vllm() -> None:
    folder = Path(plugin.__file__).parent
    table = read_table()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "vllm":
                for alias in node.names:
                    assert (node.module, alias.name) in table, f"{file.name}: add {alias.name} to NAMES"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the user's cache that keeps what vLLM 1 lacks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "aici" / "vllm" / "1.json"


def test_the_result_is_kept_until_a_file_changes(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, compared = package / "vllm", []
    find = Sources.find
    monkeypatch.setattr(Sources, "find", lambda *names: compared.append(names) or find(*names))

    def differ() -> tuple[list[str], bool]:
        compared.clear()
        return plugin.installed_differences(folder, "1"), bool(compared)

    lines, _ = differ()
    assert lines and differ() == (lines, False)
    (folder / "sampling_params.py").write_text("class SamplingParams: pass\n")  # was missing
    changed, again = differ()
    assert again and changed != lines and differ() == (changed, False)
    for unreadable in (b"", b"[]", b"{", b"[1, 2, 3]", b"\xff"):
        cache.write_bytes(unreadable)
        assert differ() == (changed, True) and differ() == (changed, False)


@pytest.mark.usefixtures("cache")
def test_the_plugin_reports_the_first_differences(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "VERSIONS", ">=1")
    with importable(package):
        problem = str(plugin.installed_problem())
    assert "does not support this build of vLLM 1: vllm.LLM is missing; vllm.SamplingParams is" in problem
    assert problem.endswith(" more") and problem.count(" is missing") == 3


def test_the_page_of_the_coupling_says_why_each_module_is_used() -> None:
    told = [module for use in coupling.USES for module in use.modules.split()]
    assert sorted(told) == sorted({module for module, _ in read_table()})
    assert coupling.PAGE.read_text("utf-8") == coupling.page(), "python -m tests.coupling --write"


def test_few_modules_of_vllms_inside_are_imported() -> None:
    """The interfaces of logits processors are public."""
    imported = set()
    for file in Path(plugin.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm.v1"):
                imported.add(str(node.module))
    assert len({module for module in imported if not module.endswith("logits_processor")}) <= 9
