"""The benchmark suite `vllm`, in its quick form, with a shallow model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.report import Report
from lab.suites import vllm
from lab.system.forked import VLLM, run_forked

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]


def test_the_suite_reports_all_figures(monkeypatch: pytest.MonkeyPatch, model_path: Path) -> None:
    def run(command: list[str], *, env: dict[str, str], cwd: Path, **_: Any) -> Any:
        """Runs a program in Python as `subprocess.run` does, but without an import of vLLM."""
        return run_forked(*command[2:], "--model", str(model_path), imports=VLLM, env=env, cwd=cwd)

    monkeypatch.setattr("lab.suites.vllm.subprocess.run", run)
    report = Report("vllm", quick=True)
    vllm.run(report)
    found = {figure.name: figure.value for figure in report.figures}
    names = {
        f"first_token.{schema}.{name}_ms"
        for schema in ("new", "again")
        for name in ("xgrammar", "aici.beside_xgrammar", "free.beside_xgrammar")
    }
    for kind in ("regex", "json_schema", "forced"):
        for engine in ("xgrammar", "aici.beside_xgrammar", "free.beside_xgrammar"):
            names.add(f"b2.{kind}.{engine}_tokens_per_s")
        names |= {f"b2.{kind}.ratio_to_xgrammar{end}" for end in ("", "_low", "_high")}
    for name in ("ratio_to_free.beside_xgrammar", "added_ms.beside_xgrammar", "xgrammar_added_ms"):
        names |= {f"b2.regex.{name}{end}" for end in ("", "_low", "_high")}
    names |= {f"b2.regex.{part}.beside_xgrammar_ms" for part in ("seat", "masks")}
    names |= {f"best_of_4.beside_xgrammar.{kind}_tokens_per_s" for kind in ("forks", "n4")}
    names |= {f"best_of_4.beside_xgrammar.ratio_to_n4{end}" for end in ("", "_low", "_high")}
    assert set(found) == {f"vllm.{name}" for name in names}
    assert all(
        value > 0
        for name, value in found.items()
        if name.endswith(("tokens_per_s", "seat.beside_xgrammar_ms", "masks.beside_xgrammar_ms"))
    )
