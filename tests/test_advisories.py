"""A developer compares the version of wasmtime with published advisories at least twice a year."""

from __future__ import annotations

import datetime
import importlib.metadata
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
HALF_A_YEAR = datetime.timedelta(days=183)


def test_advisories_were_checked_within_half_a_year() -> None:
    checked = PROJECT["tool"]["aici"]["advisories-checked"]
    age = datetime.datetime.now(datetime.UTC).date() - checked
    assert age < HALF_A_YEAR, (
        "check the advisories of github.com/bytecodealliance/wasmtime, run `pip-audit`, move to the "
        "newest wasmtime on PyPI, and set tool.aici.advisories-checked in pyproject.toml to today"
    )


def test_required_version_of_wasmtime_is_installed() -> None:
    (bound,) = (line for line in PROJECT["project"]["dependencies"] if line.startswith("wasmtime"))
    major = importlib.metadata.version("wasmtime").split(".")[0]
    assert bound == f"wasmtime>={major},<{int(major) + 1}"
