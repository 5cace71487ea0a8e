"""The public names exist, and docs/python.md lists them."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pyaici
import pyaici.errors
from aicirt.contract.errors import AiciError
from tests.docs.test_site import API

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
#: needs vLLM, which has an environment of its own
_ELSEWHERE = {"VllmEngine"}


def test_document_lists_the_public_names() -> None:
    names, modules = _PAGE.read_text().partition("## Public names")[2].split("| module | |")
    assert sorted(re.findall(r"`(\w+)`", names.partition("|---|---|")[2])) == sorted(pyaici.__all__)
    found = set(re.findall(r"^\| `([\w.]+)`", modules, re.MULTILINE))
    assert found == {name for names in API.values() for name in names[:1]} - {"pyaici"}
    for module in found:
        importlib.import_module(module)


def test_public_names_exist() -> None:
    for name in set(pyaici.__all__) - _ELSEWHERE:
        assert getattr(pyaici, name) is not None
    assert set(pyaici.__all__) <= set(dir(pyaici))


def test_all_errors_are_public() -> None:
    kinds, found = {AiciError}, set[type[AiciError]]()
    while kinds:
        kind = kinds.pop()
        found.add(kind)
        kinds |= set(kind.__subclasses__())
    ours = {
        kind.__name__
        for kind in found
        if kind.__module__ in ("aicirt.contract.errors", "pyaici.models.store")
    }
    assert ours == set(pyaici.errors.__all__)


def test_import_needs_no_engine() -> None:
    program = "import sys, pyaici.errors; print({'numpy', 'torch', 'wasmtime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
