"""The suite `grammars` runs in its short form and reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.suites.figures import figures


def test_grammars_reports_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The suite itself checks that every engine allows the tokens of its text."""
    found = figures("grammars", tmp_path, capsys)
    pairs = {"c", "c_lark", "json", "substring"}
    regexes = {"regex_sentence", "regex_string", "regex_time"}
    names = {f"{case}.32k.{engine}" for case in pairs | regexes for engine in ("aici", "llguidance")}
    names |= {f"{case}.32k.outlines" for case in regexes}
    names |= {
        f"{case}.32k.{engine}" for case in ("kbnf_json", "kbnf_structural") for engine in ("aici", "kbnf")
    }
    figures_of_each = {
        f"{name}_{what}" for name in names for what in ("us", "p50_us", "p99_us", "compile_ms")
    }
    ratios = {f"{case}.32k.ratio" for case in pairs | regexes | {"regex"}}
    kbnf = {f"kbnf.32k.{what}" for what in ("p50_us", "p99_us", "growth_ratio")}
    pools = {
        "json_schema.32k": ("aici", "llguidance"),
        "json_schema.32k_few": ("aici", "llguidance", "xgrammar"),
    }
    schemas = {f"{pool}.schemas" for pool in pools}
    schemas |= {f"json_schema.32k.{what}_ratio" for what in ("mean", "p99", "compile")}
    schemas |= {
        f"{pool}.{engine}_{what}"
        for pool, engines in pools.items()
        for engine in engines
        for what in ("us", "p50_us", "p99_us", "compile_ms", "refused", "stricter")
    }
    tool = {"tools50.build_ms", "tools50.start_ms"}
    assert set(found) == {f"grammars.{name}" for name in figures_of_each | ratios | kbnf | schemas | tool}
    assert all(found[f"grammars.{pool}.schemas"] > 0 for pool in pools)
    assert found["grammars.json_schema.32k.aici_stricter"] == 0
    assert found["grammars.tools50.build_ms"] > found["grammars.tools50.start_ms"] > 0
    for name in names:
        assert 0 < found[f"grammars.{name}_p50_us"] <= found[f"grammars.{name}_p99_us"]
        assert found[f"grammars.{name}_compile_ms"] > 0
    ours, theirs = (found[f"grammars.c.32k.{engine}_us"] for engine in ("aici", "llguidance"))
    assert found["grammars.c.32k.ratio"] == pytest.approx(ours / theirs, rel=0.01)
