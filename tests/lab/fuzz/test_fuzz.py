"""Every fuzz target runs on first inputs and some reproducible changes of them.

The long form takes all first inputs, builds the native targets, and changes inputs for longer. The normal one
takes some of them: most are texts of tests, which read them without sanitizers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab import ROOT
from lab.fuzz.native import NoCompiler, is_built
from lab.fuzz.run import run
from lab.fuzz.target import TARGETS, Target
from tests.thorough import cases, thorough

#: first inputs
_FIRST = cases(30, long=1_000_000)
#: inputs beyond the first ones
_MORE = cases(40, long=100_000)

atheris = pytest.mark.skipif(
    sys.version_info >= (3, 14) or os.uname().machine != "x86_64",
    reason="atheris has no wheel for this Python",
)


#: they take seconds to import. tests/pyaici/server/test_description.py makes requests of these APIs, too
_SLOW = ("openai", "messages")


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of a target's test."""
    found = [] if TARGETS[name].controller else [atheris]
    return [*found, pytest.mark.thorough] if name in _SLOW else found


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in TARGETS])
def test_target_has_no_findings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS[name]
    try:
        if target.controller is not None and not thorough() and not is_built(target.controller):
            pytest.skip("the cache has no build of these sources: --thorough and scripts/fuzz.sh make it")
        seeds = sorted(set(target.seeds()))
        seeds = seeds[:: -(-len(seeds) // _FIRST)]
        monkeypatch.setitem(TARGETS, name, replace(target, seeds=lambda: seeds))
        count = len(seeds) + _MORE
        result = run(name, None, executions=count, seed=1, learned=tmp_path / "learned")
    except NoCompiler:
        if os.environ.get("AICI_CLANG"):
            raise
        pytest.skip("there is no clang: scripts/clang.sh prints the reason")
    assert result.finding is None, result.report()
    assert result.executions >= count and result.coverage > 0


@atheris
def test_finding_is_kept_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(TARGETS, "defect", Target("a reader with a defect", lambda: [b"dE", b"ee"], 64))
    result = run("defect", 60, seed=1)
    assert result.finding is not None and result.finding.parent == tmp_path / "aici" / "fuzz" / "findings"
    assert "ValueError: the defect" in result.report()
    assert f"scripts/fuzz.sh defect --input {result.finding}" in result.report()
    assert run("defect", 5, only=result.finding).finding == result.finding
    result.finding.write_bytes(b"no defect")
    assert run("defect", 5, only=result.finding).finding is None


def test_command_lists_targets_and_options() -> None:
    command = [sys.executable, "-m", "lab.fuzz"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(TARGETS)
    shown = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--seconds" in shown.stdout and "--input" in shown.stdout
