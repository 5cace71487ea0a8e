"""The suite `maskbench` runs in its short form, reports all figures, and goes on after an interruption."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import CANNOT_RUN, INTERRUPTED, main
from lab.contestants.schema_engine import ENGINES
from lab.contestants.schema_trial import PHASES, Trial
from lab.inputs.maskbench import Case
from tests.lab.suites.figures import Figures

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
#: no engine enforces it
UNSUPPORTED = {"type": "string", "pattern": "(a)\\1"}


def write(folder: Path, name: str, schema: Any, *tests: tuple[bool, Any]) -> None:
    folder.mkdir(exist_ok=True)
    data = {"schema": schema, "tests": [{"valid": valid, "data": value} for valid, value in tests]}
    (folder / f"{name}.json").write_text(json.dumps(data))


def test_maskbench_reports_all_figures(tmp_path: Path, figures: Figures) -> None:
    data = tmp_path / "data"
    write(
        data, "person", PERSON, (True, {"name": "Ada", "age": 36}), (False, {"age": 36}), (False, {"name": 1})
    )
    write(data, "unsupported", UNSUPPORTED, (True, "aa"), (False, "ab"))
    (data / "broken.json").write_text('{"schema": {}')
    found = figures("maskbench", "--data", str(data))
    of_masks = ("mean_us", "p50_us", "p90_us", "p99_us", "p99.9_us", "max_us")
    names = {f"{name}.{phase}.{what}" for name in ENGINES for phase in PHASES for what in of_masks}
    of_ms = [f"{what}_{part}_ms" for what in ("compile", "start") for part in ("p50", "p99", "max")]
    names |= {
        f"{name}.{what}" for name in ENGINES for what in (*of_ms, "grown_mb", "pass_pct", "compiled_pct")
    }
    ratios = [f"{phase}.{what}_ratio" for phase in PHASES for what in ("mean", "p50", "p99")]
    ratios += ["tenth.mean_ratio_to_xgrammar", "compile_p50_ratio", "pass_pct", "invalid_accepted"]
    names |= {"schemas", "broken_files", "aici.builder_ms", "aici.template_kib", *ratios}
    names |= {f"fuel.{what}.{part}" for what in (*PHASES, "compile") for part in ("mean", "p50", "p99")}
    assert set(found) == {f"maskbench.{name}" for name in names}
    assert list(found)[-len(ratios) :] == [f"maskbench.{name}" for name in ratios], "the last lines"
    assert (found["maskbench.schemas"], found["maskbench.broken_files"]) == (2, 1)
    assert found["maskbench.pass_pct"] == found["maskbench.aici.compiled_pct"] == 50
    assert found["maskbench.invalid_accepted"] == 0
    assert all(found[f"maskbench.{name}"] > 0 for name in names if name.endswith(("_us", "_p50_ms", ".mean")))
    details = json.loads((tmp_path / "out" / "maskbench.json").read_text())["details"]
    assert details["outcomes"]["aici"] == {"pass": 1, "refused": 1}
    (reason,) = details["refusals"]["aici"]
    assert "back-reference" in reason
    assert details["broken_files"][0].startswith("broken.json: ")
    pair = details["pairs"]["cold"]["llguidance"]["cpu"]
    assert pair["aici"]["all"]["count"] == pair["llguidance"]["all"]["count"] > 5
    ratio = pair["aici"]["all"]["mean"] / pair["llguidance"]["all"]["mean"]
    assert found["maskbench.cold.mean_ratio"] == pytest.approx(ratio, rel=0.01)
    # a line that says what it depends on, and one for each schema
    assert len((tmp_path / "out" / "maskbench.jsonl").read_text().splitlines()) == 3
    assert not (tmp_path / "out" / "maskbench.part.jsonl").exists()


def test_all_schemas_are_covered(tmp_path: Path, figures: Figures) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "late", PERSON, (True, {"age": 36, "name": "Ada"}), (True, {"name": "Ada"}))
    write(data, "wrong", PERSON, (True, {"age": 36}), (False, {"name": "Ada"}))
    write(data, "unsupported", UNSUPPORTED, (True, "aa"), (False, "ab"))
    found = figures("maskbench", "--data", str(data), "--all", "--jobs", "2")
    expected = {"schemas": 3, "texts": 6, "refused": 1, "failed": 0, "valid_refused": 2}
    expected |= {"valid_refused_any_order": 1, "invalid_accepted": 1, "pass_pct": 0}
    assert {name: found[f"maskbench.all.{name}"] for name in expected} == expected
    assert found["maskbench.all.pass_any_order_pct"] == pytest.approx(100 / 3, rel=1e-3)
    assert found["maskbench.all.masks"] > 10
    assert found["maskbench.all.worst_compile_fuel"] > 0 < found["maskbench.all.worst_mask_fuel"]
    details = json.loads((out / "maskbench.json").read_text())["details"]
    (cause,) = details["causes"]
    assert "back-reference" in cause
    assert sorted(details["valid_refused"]) == [
        ["late", '{"age": 36, "name": "Ada"}', True],
        ["wrong", '{"age": 36}', False],
    ]
    assert list(details["invalid_accepted"]) == ["wrong"]
    assert len((out / "coverage.jsonl").read_text().splitlines()) == 4


def test_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for name in "abc":
        write(data, name, {}, (True, 1))
    measured: list[str] = []

    def trial(self: Trial, case: Case, number: int) -> dict[str, Any]:
        if len(measured) == 2 and "interrupted" not in measured:
            measured.append("interrupted")
            signal.raise_signal(signal.SIGINT)
        measured.append(case.name)
        engines = {name: {"outcome": "pass", "compile": [2, 1]} for name in ENGINES}
        return {"name": case.name, "phases": [], "engines": engines}

    monkeypatch.setattr(Trial, "run", trial)
    command = ["maskbench", "--data", str(data), "--out", str(tmp_path / "out")]
    assert main(command) == INTERRUPTED
    assert "2 of 3 schemas are measured; the same command goes on" in capsys.readouterr().err
    assert main([*command, "--seed", "1"]) == 0, "another choice of schemas begins anew"
    assert len(measured) == 6
    measured.clear()
    assert main(command) == INTERRUPTED
    assert main(command) == 0
    assert sorted(measured) == ["a", "b", "c", "interrupted"]
    assert "maskbench.schemas 3 schemas" in capsys.readouterr().out.splitlines()


def test_own_schemas_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Case] = []

    def trial(self: Trial, case: Case, number: int) -> dict[str, Any]:
        measured.append(case)
        return {"name": case.name, "phases": [], "engines": {name: {"outcome": "pass"} for name in ENGINES}}

    monkeypatch.setattr(Trial, "run", trial)
    assert main(["maskbench", "--quick", "--limit", "2", "--out", str(tmp_path)]) == 0
    assert len(measured) == 2
    for case in measured:
        assert case.name.startswith("own_") and case.valid and case.invalid


def test_folder_without_schemas_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maskbench", "--data", str(tmp_path)]) == CANNOT_RUN
    assert f"{tmp_path} has no JSON files: give the folder maskbench/data" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_invalid_limit_is_an_error(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["maskbench", f"--limit={limit}"])
    assert f"{limit!r} is not a number of schemas: 1 or more is expected" in capsys.readouterr().err


def test_help_of_the_suite_has_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["maskbench", "--help"])
    assert end.value.code == 0
    assert "--data" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["size", "--data", "x"])
    assert "unrecognized arguments: --data" in capsys.readouterr().err
