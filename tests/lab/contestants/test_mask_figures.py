"""Figures of MaskBench from results of schemas."""

from __future__ import annotations

from typing import Any

import pytest

from lab.contestants.mask_figures import MaskFigures, reason_group
from lab.report import Report

ENGINES = ("aici", "llguidance", "xgrammar")


def walk(*us: int) -> dict[str, Any]:
    times = [1000 * time for time in us]
    return {"start": [4_000_000, 2_000_000], "cpu": times, "wall": [2 * time for time in times]}


def passed(compile_ms: int, **phases: Any) -> dict[str, Any]:
    times = [compile_ms * 2_000_000, compile_ms * 1_000_000]
    return {"outcome": "pass", "compile": times, "kib": 2048, "phases": phases}


REFUSED = {"outcome": "refused", "refused": '#/properties/a/format: "x" is 17 too long'}
RESULTS: list[dict[str, Any]] = [
    {
        "name": "a",
        "phases": ["cold"],
        "engines": {
            "aici": passed(2, cold=walk(10, 30, 999)) | {"idle_ms": 5.0, "template_kib": 80.0},
            "llguidance": passed(1, cold=walk(20, 60)),
            "xgrammar": REFUSED,
            "fuel": passed(3, cold=walk(7) | {"fuel": [4000, 8000]}) | {"fuel": 9000},
        },
    },
    {
        "name": "b",
        "phases": ["cold", "tenth"],
        "engines": {
            "aici": REFUSED,
            "llguidance": passed(9, cold=walk(500), tenth=walk(500)),
            "xgrammar": passed(900, cold=walk(1), tenth={"wall": [], "cpu": [], "error": "no"}),
        },
    },
    {
        "name": "c",
        "phases": ["tenth"],
        "engines": {
            "aici": {**passed(4, tenth=walk(8)), "outcome": "invalid text accepted", "wrong": "x"},
            "llguidance": passed(1, tenth=walk(2)),
            "xgrammar": passed(800, tenth=walk(4)),
        },
    },
]


@pytest.fixture
def report() -> Report:
    made = Report("maskbench")
    MaskFigures(ENGINES, RESULTS).report(made)
    return made


def test_ratios_count_only_masks_that_both_engines_computed(report: Report) -> None:
    found = {figure.name.removeprefix("maskbench."): figure.value for figure in report.figures}
    assert found["cold.mean_ratio"] == pytest.approx((10 + 30) / (20 + 60))
    assert found["tenth.mean_ratio"] == pytest.approx(8 / 2)
    assert found["tenth.mean_ratio_to_xgrammar"] == pytest.approx(8 / 4)
    assert found["compile_p50_ratio"] == pytest.approx(3 / 1)
    assert not any(name.startswith("second") for name in found), "no text counts"
    assert (found["fuel.cold.mean"], found["fuel.compile.mean"]) == (6, 9)
    assert found["aici.cold.mean_us"] == pytest.approx((10 + 30 + 999) / 3), "of the engine alone"


def test_coverage(report: Report) -> None:
    found = {figure.name.removeprefix("maskbench."): figure.value for figure in report.figures}
    assert found["schemas"] == 3
    assert found["pass_pct"] == pytest.approx(100 / 3)
    assert found["aici.compiled_pct"] == pytest.approx(200 / 3)
    assert found["invalid_accepted"] == 1
    assert report.details["outcomes"]["xgrammar"] == {"refused": 1, "pass": 2}
    assert report.details["failures"]["aici"]["invalid text accepted"] == {"c": "x"}
    assert report.details["failures"]["llguidance"] == {}
    assert report.details["refusals"]["aici"] == {"#/…/format: … is N too long": 1}


def test_positions(report: Report) -> None:
    found = report.details["masks"]["cold"]["aici"]
    assert [found["cpu"][name]["mean"] for name in ("1", "2", "3-7")] == [10, 30, 999]
    assert found["wall"]["2"]["mean"] == 60
    assert "8-15" not in found["cpu"]
    assert report.details["pairs"]["cold"]["llguidance"]["cpu"]["aici"]["all"]["count"] == 2


def test_no_schema_at_all_has_no_ratio() -> None:
    report = Report("maskbench")
    MaskFigures(ENGINES, []).report(report)
    assert not any("ratio" in figure.name for figure in report.figures)


@pytest.mark.parametrize(
    ("messages", "group"),
    [
        (["#/a/b/pattern: no", "#/properties/c~1d/pattern: no"], "#/…/pattern: no"),
        (["Unknown format 'x'", "Unknown format 'y z'"], "Unknown format …"),
        (["at 1.5 of 20", "at 2 of 7"], "at N of N"),
        (["first\nsecond", "first"], "first"),
        (["the schema is refused\n#/a: no\n#/b: yes", "#/x/y: no"], "#/…: no"),
    ],
)
def test_messages_with_the_same_reason_are_a_group(messages: list[str], group: str) -> None:
    assert {reason_group(message) for message in messages} == {group}
