"""Every suite runs, in its short form, and reports the figures that others read by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main

CONSTRAINTS = ("letters", "number", "json_string", "email", "until_tag")


def figures(suite: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What the last lines of the output say; the JSON must say the same."""
    assert main([suite, "--quick", "--out", str(folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {name: float(value) for name, value, _ in lines}
    data = json.loads((folder / f"{suite}.json").read_text())
    assert [figure["name"] for figure in data["figures"]] == [name for name, _, _ in lines]
    assert data["command"] == f"./scripts/bench.sh {suite} --quick"
    assert (folder / f"{suite}.png").stat().st_size > 1000
    return found


def test_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The suite itself compares every mask with llguidance's."""
    found = figures("masks", tmp_path, capsys)
    names = [f"{name}.{way}_us" for name in CONSTRAINTS for way in ("cold", "warm")]
    names += [f"{name}.llguidance_{way}_us" for name in CONSTRAINTS for way in ("cold", "warm")]
    names += ["cold_ratio", "warm_ratio", "worst_ratio"]
    assert set(found) == {f"masks.32k.{name}" for name in names}
    for name in CONSTRAINTS:
        assert found[f"masks.32k.{name}.warm_us"] > 0
    ours = sum(found[f"masks.32k.{name}.cold_us"] for name in CONSTRAINTS)
    theirs = sum(found[f"masks.32k.{name}.llguidance_cold_us"] for name in CONSTRAINTS)
    assert found["masks.32k.cold_ratio"] == pytest.approx(ours / theirs, rel=0.01)


def test_grammars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The suite itself asks every engine whether it allows the tokens of its text."""
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


def test_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("step", tmp_path, capsys)
    for count in (2, 4):
        critical, begin = found[f"step.critical_ms.{count}"], found[f"step.begin_ms.{count}"]
        assert 0 < begin < critical <= found[f"step.critical_p99_ms.{count}"]
        assert found[f"step.wait_ms.{count}"] > 0
    assert 0 < found["step.critical_regex_ms.40"] <= found["step.critical_regex_p99_ms.40"]
    assert 0 < found["step.overlapped_ms.40"] <= found["step.overlapped_p99_ms.40"]
    assert 0 < found["step.idle_cpu_pct"] < 50


def test_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("fork", tmp_path, capsys)
    sizes = ("1mb", "4mb", "16mb")
    names = {f"fork.{kind}.{size}" for kind in ("us", "client_us") for size in sizes}
    names |= {"fork.us.next_child", "start.worker_us", "start.client_ms", "move.client_ms"}
    names |= {f"start.client_ms.{name}" for name in CONSTRAINTS}
    names |= {f"memory.guest_kib.{name}" for name in CONSTRAINTS}
    names |= {f"memory.guest_warm_kib.{name}" for name in CONSTRAINTS}
    names |= {"memory.per_sequence_kib", "memory.mask_rows_kib", "memory.page_tables_kib"}
    names |= {"start.worker_warm_us", "memory.per_warm_sequence_kib"}
    for way in ("cold", "warm"):
        names |= {f"start.first_steps_{way}_us"}
        names |= {f"start.first_steps_{way}_us.{name}" for name in CONSTRAINTS}
        names |= {f"start.snapshot_{way}_kib.{name}" for name in CONSTRAINTS}
    assert set(found) == names
    assert min(found[f"fork.us.{size}"] for size in sizes) > 0
    # a step writes to two pages at least: the step's argument, and the stack; the short form has so few
    # sequences that a single one may seem to need less than nothing
    guests = [found[f"memory.guest_kib.{name}"] for name in CONSTRAINTS]
    assert max(guests) > 8
    mean = sum(guests) / len(guests) + found["memory.mask_rows_kib"]
    assert found["memory.per_sequence_kib"] == pytest.approx(mean, rel=0.01)


@pytest.mark.slow
def test_overhead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("overhead", tmp_path, capsys)
    for batch in (1, 8):
        name = f"overhead.hf.b{batch}"
        assert found[f"{name}_low_ms"] <= found[f"{name}_ms"] <= found[f"{name}_high_ms"]
        assert found[f"{name}_free_step_ms"] > 0


@pytest.mark.slow
def test_cpc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The suite enumerates what it samples."""
    found = figures("cpc", tmp_path, capsys)
    each = ("histories", "evals", "trials", "trials_untold", "tv_pcas", "tv_heal", "chi2_p")
    names = {f"{name}.{what}" for name in ("bridge", "paris", "munich") for what in each}
    names |= {"chi2_p", "tv_pcas", "tv_pcas_max", "tv_heal", "evals", "evals_ratio", "evals_per_key"}
    names |= {"cold_ms", "warm_ms", "warm_mean_ms", "http_cold_ms", "http_warm_ms"}
    names |= {"adherence_exact", "adherence_asked"}
    assert set(found) == {f"cpc.{name}" for name in names}
    assert found["cpc.chi2_p"] > 1e-4 and 0 < found["cpc.tv_pcas"] <= found["cpc.tv_pcas_max"] <= 1
    assert 0 < found["cpc.evals_ratio"] < 1
    assert found["cpc.adherence_exact"] == 1 > found["cpc.adherence_asked"]


@pytest.mark.slow
def test_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("server", tmp_path, capsys)
    each = ("tokens_per_s", "bare_tokens_per_s", "rate_ratio", "first_token_ms", "first_token_p99_ms")
    each += ("bare_first_token_ms", "first_token_added_ms")
    assert set(found) == {
        f"server.b{n}.{kind}.{what}" for n in (1, 8) for kind in ("free", "regex") for what in each
    }
    assert all(found[name] > 0 for name in found if "added" not in name)


@pytest.mark.slow
def test_fairness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures("fairness", tmp_path, capsys)
    victims = [name for name in found if name.endswith("_p99_ms") and "victim" not in name]
    assert sorted(name.split(".")[1] for name in victims) == [
        f"{name}_p99_ms"
        for name in ("all", "alone", "batch_busy", "batch_runaway", "busy", "init", "runaway")
    ]
    worst = max(found[name] for name in victims if "alone" not in name)
    assert found["fairness.victim_p99_ms"] == worst > 0
    # of 200 calls; a core that the hypervisor takes away for a millisecond counts as the guest's own time
    assert found["fairness.false_kills"] <= 2
    assert found["fairness.recovery_ms"] > 0
    assert found["fairness.alone_steps_per_s"] > 0 and found["fairness.two_clients_ratio"] > 0
