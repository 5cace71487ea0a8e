"""The suite `gpu`: its parts run on a CPU in small sizes, and without a GPU it says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from lab import ROOT
from lab.report import Report
from lab.suites import gpu
from pyaici.client.masks import _apply_batched, apply_masks

CPU = torch.device("cpu")
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize("apply", [apply_masks, _apply_batched], ids=["cpu", "batched-on-cpu"])
def test_masks_run_on_a_cpu(apply: object) -> None:
    report = Report("gpu", quick=True)
    gpu.masks(report, CPU, 3, 1000, apply)
    figures = {figure.name: figure.value for figure in report.figures}
    assert list(figures) == ["gpu.masks.b3.launch_us", "gpu.masks.b3.done_us"]
    assert 0 < figures["gpu.masks.b3.launch_us"] <= figures["gpu.masks.b3.done_us"]


def test_wrong_masks_are_an_error() -> None:
    with pytest.raises(AssertionError):
        gpu.masks(Report("gpu", quick=True), CPU, 3, 1000, lambda logits, rows: None)


@pytest.mark.thorough  # a measurement: test_masks.py runs a suite whole
@pytest.mark.slow
def test_steps_run_on_a_cpu() -> None:
    report = Report("gpu", quick=True)
    gpu.steps(report, CPU, "tiny", SHAPE, 1024, (1, 3))
    figures = {figure.name: figure.value for figure in report.figures}
    each = ("free_ms", "added_ratio", "added_ratio_low", "added_ratio_high", "phases_ms")
    assert list(figures) == [f"gpu.hf.tiny.b{batch}.{name}" for batch in (1, 3) for name in each]
    assert figures["gpu.hf.tiny.b3.free_ms"] > 0 and figures["gpu.hf.tiny.b3.phases_ms"] > 0


def test_models_have_their_size() -> None:
    for name, size in (("1b", 1.0e9), ("8b", 8.0e9)):
        assert size <= gpu._parameters(gpu.MODELS[name], gpu.TOKENS) < 1.6 * size


def test_without_a_gpu_the_script_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [ROOT / "scripts" / "gpu.sh", "--quick", "--out", tmp_path],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 3 and ended.stdout == ""
    assert ended.stderr.startswith("nothing was measured: ") and "GPU" in ended.stderr
    assert not list(tmp_path.iterdir())
