"""Somebody compares the version of wasmtime with published advisories, twice a year at least."""

from __future__ import annotations

import datetime
import importlib.metadata
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
HALF_A_YEAR = datetime.timedelta(days=183)


def test_advisories_were_looked_at_lately() -> None:
    checked = PROJECT["tool"]["aici"]["advisories-checked"]
    age = datetime.datetime.now(datetime.UTC).date() - checked
    assert age < HALF_A_YEAR, (
        "look at the advisories of github.com/bytecodealliance/wasmtime, run `pip-audit`, move to the "
        "newest wasmtime on PyPI, and set tool.aici.advisories-checked in pyproject.toml to today"
    )


def test_the_version_that_was_looked_at_is_the_one_that_is_installed() -> None:
    (bound,) = (line for line in PROJECT["project"]["dependencies"] if line.startswith("wasmtime"))
    major = importlib.metadata.version("wasmtime").split(".")[0]
    assert bound == f"wasmtime>={major},<{int(major) + 1}"
