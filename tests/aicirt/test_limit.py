"""Limits: their descriptions in the help and in the docs match their values."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from aicirt.__main__ import limits_help, main
from aicirt.contract.errors import AiciError
from aicirt.settings import DaemonSettings, RequestLimits, WorkerConfig, WorkerSettings, describe, limit
from aicirt.wasm import Limits

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guide" / "limits.md"
GROUPS = (Limits, RequestLimits, WorkerSettings, DaemonSettings)
DEFAULTS = {item.name: item.default for group in GROUPS for item in dataclasses.fields(group)}


def codes(base: type[AiciError] = AiciError) -> set[str]:
    return {base.code}.union(*(codes(sub) for sub in base.__subclasses__()))


def test_help_lists_every_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    ([a-z_]+) +([0-9.]+) (\S.*)$", capsys.readouterr().out, re.MULTILINE)
    assert {name: float(amount) for name, amount, _ in listed} == DEFAULTS
    assert [name for name, _, _ in listed] == list(DEFAULTS)
    assert all(len(line) <= 114 for line in limits_help().splitlines())


def test_every_limit_names_its_unit_and_known_errors() -> None:
    for group in GROUPS:
        for name, amount, beyond in describe(group):
            assert re.match(r"[0-9.]+ [a-z]", amount) and beyond, name
            named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", beyond))
            assert named <= codes() | DEFAULTS.keys(), f"{name} names {named - codes()}"
            if name.endswith("_bytes"):
                assert " bytes" in amount, name
            if name.endswith("_ms"):
                assert " ms" in amount, name


def test_amounts_are_readable() -> None:
    @dataclasses.dataclass
    class Some:
        large: int = limit(3 << 20, "bytes a step", "x")
        small: int = limit(1536, "bytes", "x")
        tiny: int = limit(12, "bytes", "x")
        time: float = limit(0.5, "ms", "x")

    assert [amount for _, amount, _ in describe(Some)] == [
        "3145728 bytes a step (3 MiB)",
        "1536 bytes (1.5 KiB)",
        "12 bytes",
        "0.5 ms",
    ]


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_limit_can_be_set(name: str) -> None:
    config = WorkerConfig.with_overrides({name: 7})
    parts = dataclasses.asdict(config)
    now = {**parts["limits"], **parts["request"], **parts["worker"], **parts["daemon"]}
    assert now == {**DEFAULTS, name: 7} and type(now[name]) is type(DEFAULTS[name])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_forks", -1, "max_forks is -1; it must be 0 or a positive number"),
        ("max_forks", 2.5, "max_forks is 2.5; it must be a whole number"),
        ("mid_ms", float("nan"), "mid_ms is nan"),
        ("mid_ms", float("inf"), "mid_ms is inf"),
        ("luck", 7, "there is no limit 'luck'"),
    ],
)
def test_invalid_limits_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        WorkerConfig.with_overrides({name: value})
    assert WorkerConfig.with_overrides({"mid_ms": 2.5}).limits.mid_ms == 2.5


def test_defaults_in_the_docs_match() -> None:
    """Reads the table in docs/guide/limits.md: `name` | default | consequence."""
    section = DOCUMENT.read_text().partition("## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*`([a-z_]+)` \| ([0-9]+) ?(KiB|MiB)?", section, re.MULTILINE)
    assert len(rows) > 10
    for name, amount, unit in rows:
        value = int(amount) << {"": 0, "KiB": 10, "MiB": 20}[unit]
        assert value == DEFAULTS[name], name
