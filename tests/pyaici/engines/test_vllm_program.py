"""harness/run_vllm.py without vLLM installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from lab.system.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "harness" / "run_vllm.py"), *argv]
    env = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_missing_vllm_is_an_error_with_advice() -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here; tests/pyaici/engines/vllm run it")
    done = run("--prompt", "x")
    assert done.returncode == 1
    assert 'run_vllm.py: error: this needs vLLM: pip install "pyaici[vllm]", or in a checkout' in done.stderr


def test_help_works_without_vllm() -> None:
    done = run("--help")
    assert done.returncode == 0
    for option in ("--controller", "--arg", "--prompt", "--max-tokens", "--temperature", "--model", "--n "):
        assert option in done.stdout
