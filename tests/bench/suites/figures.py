"""Helper for the tests of suites: runs a suite in its short form."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bench.__main__ import main

CONSTRAINTS = ("letters", "number", "json_string", "email", "until_tag")


def figures(suite: str, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, float]:
    """Runs a suite; returns the figures of its last lines of output, after comparing them with the JSON."""
    assert main([suite, "--quick", *options, "--out", str(folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {name: float(value) for name, value, _ in lines}
    data = json.loads((folder / f"{suite}.json").read_text())
    assert [figure["name"] for figure in data["figures"]] == [name for name, _, _ in lines]
    assert data["command"] == shlex.join(["./scripts/bench.sh", suite, "--quick", *options])
    assert (folder / f"{suite}.png").stat().st_size > 1000
    return found
