"""`scripts/bench.sh size` reports the size of every controller, and the SDK's three layers stay small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import ROOT
from lab.__main__ import main
from lab.suites.size import TARGET
from pyaici.toolchain import controller_folders


def test_size_of_every_controller_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--out", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    sizes = {name: float(value) for name, value, unit in lines if unit == "kB"}
    assert len(sizes) == len(lines)
    assert set(sizes) == {f"size.{folder.name}_kb" for folder in controller_folders(ROOT)} | {
        "size.three_layers_kb"
    }
    assert 1 < sizes["size.three_layers_kb"] <= TARGET
    figures = json.loads((tmp_path / "size.json").read_text())["figures"]
    assert [f["target"] for f in figures if f["name"] == "size.three_layers_kb"] == [TARGET]
    assert (tmp_path / "size.png").stat().st_size > 1000
