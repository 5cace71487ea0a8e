"""Controllers in vLLM: cost of a step compared with free requests and with vLLM's own structured outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.measurement.timing import percentile, summarise
from lab.report import Report

BACKENDS = ("xgrammar", "guidance")
#: upper limit of the time that a step takes longer than a free one, ms
_MAX_ADDED_MS = 0.3
#: the batch whose figures have targets
_OFFICIAL = 8


def run(report: Report) -> None:
    """Measures the tokens per second of all sequences together, for each batch and constraint.

    Ratios are medians of paired rounds, with the range of nine tenths of them (`_low`, `_high`). For two
    batches, also measures inside the engine how many milliseconds of a step AICI ("seat") and vLLM's handling
    of masks take. `best_of_4` is four texts by the forks of one controller, relative to a request with `n=4`.
    Raises RuntimeError with an engine's output if it fails.
    """
    for backend in BACKENDS[:1] if report.quick else BACKENDS:
        found = race(backend, quick=report.quick)
        _first_token(report, backend, found.pop("first_token"))
        _best_of_4(report, backend, found.pop("best_of_4"))
        for name, samples in found.items():
            batch, kind = name.split(".")
            if kind == "parts":
                _parts(report, batch, backend, samples)
            else:
                _throughput(report, batch, kind, backend, samples)


def race(backend: str, *, quick: bool) -> dict[str, Any]:
    """Runs lab.contestants.vllm_race in vLLM's environment and returns its results."""
    python = ROOT / ".venv-vllm" / "bin" / "python"
    interpreter = str(python if python.exists() else Path(sys.executable))
    command = [interpreter, "-m", "lab.contestants.vllm_race", backend]
    if quick:
        command += ["--batches", "2", "--tokens", "4", "--rounds", "1"]
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _first_token(report: Report, backend: str, samples: dict[str, dict[str, list[float]]]) -> None:
    for engine, by_schema in samples.items():
        for schema, values in by_schema.items():
            name = f"vllm.first_token.{schema}.{engine}"
            name += "_ms" if engine == backend else f".beside_{backend}_ms"
            report.samples(name, values, "ms")
            report.figure(name, summarise(values).median, "ms")


def _best_of_4(report: Report, backend: str, samples: dict[str, list[float]]) -> None:
    name = f"vllm.best_of_4.beside_{backend}"
    for kind, values in samples.items():
        report.samples(f"{name}.{kind}_ms", values, "ms")
        report.figure(f"{name}.{kind}_tokens_per_s", 4e3 / summarise(values).median, "tokens/s")
    ratios = [b / a for a, b in zip(samples["forks"], samples["n4"], strict=True)]
    _paired(report, f"{name}.ratio_to_n4", ratios, "ratio")


def _parts(report: Report, batch: str, backend: str, samples: dict[str, list[float]]) -> None:
    """Reports the parts of a step under our controllers: AICI ("seat"), and vLLM's handling of masks."""
    for part, values in samples.items():
        name = f"vllm.{batch}.regex.{part}.beside_{backend}_ms"
        report.samples(name, values, "ms")
        report.figure(name, summarise(values).median, "ms")


def _throughput(report: Report, batch: str, kind: str, backend: str, samples: dict[str, list[float]]) -> None:
    size, name = int(batch[1:]), f"vllm.{batch}.{kind}"
    for engine, values in samples.items():
        full = f"{name}.{engine}" + ("" if engine == backend else f".beside_{backend}")
        report.samples(f"{full}_ms", values, "ms")
        report.figure(f"{full}_tokens_per_s", size * 1e3 / summarise(values).median, "tokens/s")
    ours, free, theirs = samples["aici"], samples["free"], samples[backend]
    _paired(report, f"{name}.ratio_to_{backend}", [b / a for a, b in zip(ours, theirs, strict=True)], "ratio")
    if kind == "regex":
        _paired(
            report,
            f"{name}.ratio_to_free.beside_{backend}",
            [b / a for a, b in zip(ours, free, strict=True)],
            "ratio",
        )
        added = [a - b for a, b in zip(ours, free, strict=True)]
        target = _MAX_ADDED_MS if size == _OFFICIAL else None
        _paired(report, f"{name}.added_ms.beside_{backend}", added, "ms", target)
        added = [a - b for a, b in zip(theirs, free, strict=True)]
        _paired(report, f"{name}.{backend}_added_ms", added, "ms")


def _paired(report: Report, name: str, values: list[float], unit: str, target: float | None = None) -> None:
    report.figure(name, percentile(values, 50), unit, target=target)
    report.figure(f"{name}_low", percentile(values, 5), unit)
    report.figure(f"{name}_high", percentile(values, 95), unit)
