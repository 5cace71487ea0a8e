"""The programs in docs/vllm.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.system.forked import VLLM, run_forked
from tests.docs.blocks import blocks, run_blocks

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]

ROOT = Path(__file__).resolve().parents[4]


def test_all_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    assert run_blocks(ROOT / "docs" / "vllm.md", tmp_path) > 0


def test_the_first_program_runs_as_a_file(tmp_path: Path) -> None:
    """Runs the program as users do: vLLM's engine is in another process, which imports the file again."""
    first = next(block for block in blocks(ROOT / "docs" / "vllm.md") if "run" in block.words)
    file = tmp_path / "offline.py"
    file.write_text(first.text)
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = run_forked(str(file), imports=VLLM, env={**env, "PYTHONPATH": path}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
