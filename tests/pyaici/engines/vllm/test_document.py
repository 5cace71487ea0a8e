"""The programs in the documents about vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import run_blocks
from tests.pyaici.engines.vllm.engines import Engines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: Engines) -> None:
    engines.close()  # one engine at a time in a process
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    assert run_blocks(ROOT / "docs" / "vllm.md", tmp_path) > 0
