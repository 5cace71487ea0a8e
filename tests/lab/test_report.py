"""The files of a report and its lines of output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main, suites
from lab.report import Report


def test_report_writes_json_and_plot(tmp_path: Path) -> None:
    report = Report("demo")
    report.figure("demo.time.1", 0.123456, "ms", target=0.2)
    report.figure("demo.size", 40, "kB")
    report.samples("demo.time.1", [0.1, 0.2, 0.3], "ms")
    data, plot = report.write(tmp_path / "new")
    found = json.loads(data.read_text())
    assert found["command"] == "./scripts/bench.sh demo"
    assert found["figures"][0] == {"name": "demo.time.1", "value": 0.123456, "unit": "ms", "target": 0.2}
    assert found["samples"]["demo.time.1"]["median"] == pytest.approx(0.2)
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["packages"]["wasmtime"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_lines_have_four_digits() -> None:
    report = Report("demo")
    report.figure("demo.a", 1234.5678, "us")
    report.figure("demo.b", 0.00012345, "ms")
    report.figure("demo.c", 40, "kB")
    assert [figure.line() for figure in report.figures] == [
        "demo.a 1235 us",
        "demo.b 0.0001234 ms",
        "demo.c 40 kB",
    ]


def test_every_suite_has_a_summary() -> None:
    assert "size" in suites()
    assert all(summary.endswith(".") for summary in suites().values())


def test_unknown_suite_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "'speed'" in capsys.readouterr().err
