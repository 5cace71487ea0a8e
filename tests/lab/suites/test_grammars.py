"""The suite `grammars` reports all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.contestants import Contestant, grammar_cases
from lab.contestants.grammar_cases import Arena
from lab.inputs.vocabularies import synthetic
from lab.suites import grammars
from tests.lab.suites.figures import Figures, forms


class Any(Contestant):
    """Allows all tokens."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compile(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def mask(self) -> None:
        pass

    def accept(self, token: int) -> None:
        pass

    def row(self) -> bytes:
        return b"\xff" * 64


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, any_token: Path) -> None:
    """Engines that compile nothing, and a controller for the tool."""
    monkeypatch.setattr(grammars, "vocabulary", lambda size: synthetic(512))
    monkeypatch.setattr(grammars, "Controllers", lambda folder: dict.fromkeys(["json_schema"], any_token))
    monkeypatch.setattr(grammar_cases, "Natives", lambda *words: None)
    monkeypatch.setattr(grammar_cases, "OutlinesCore", lambda *words: Any("outlines"))
    monkeypatch.setattr(grammar_cases, "Kbnf", lambda *words: Any("kbnf"))
    monkeypatch.setattr(grammars.Xgrammar, "of_schema", lambda *words: Any("xgrammar"))
    for name in ("aici", "aici_schema", "llguidance_lark", "llguidance_regex", "llguidance_schema"):
        stand_in = Any(name.partition("_")[0])
        monkeypatch.setattr(Arena, name, lambda *words, stand_in=stand_in: stand_in)


@forms
def test_grammars_reports_all_figures(form: str, figures: Figures, request: pytest.FixtureRequest) -> None:
    """The suite itself checks that every engine allows the tokens of its text.

    tests/lab/contestants/test_contestants.py has the engines.
    """
    if form == "stand-ins":
        request.getfixturevalue("stand_ins")
    found = figures("grammars")
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
    build, start = (found[f"grammars.tools50.{what}_ms"] for what in ("build", "start"))
    assert min(build, start) > 0 and (build > start or form == "stand-ins")
    for name in names:
        assert 0 < found[f"grammars.{name}_p50_us"] <= found[f"grammars.{name}_p99_us"]
        assert found[f"grammars.{name}_compile_ms"] > 0
    ours, theirs = (found[f"grammars.c.32k.{engine}_us"] for engine in ("aici", "llguidance"))
    assert found["grammars.c.32k.ratio"] == pytest.approx(ours / theirs, rel=0.01)
