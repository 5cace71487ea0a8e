"""Daemon, engine and other owners survive an owner who takes all the memory of their control group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.memory_group import memory_group

from .test_memory import memory_wasm

__all__ = ["memory_wasm"]

MIB = 1 << 20
#: daemon and engine need about 200 MiB; six of the attacker's scripts alone would take another 800
GROUP = 512 * MIB
#: high time limits, so that on a busy machine sequences end only because of memory
TIMES = ("pre_ms=1000", "mid_ms=1000", "step_deadline_ms=60000")
ROOT = Path(__file__).resolve().parents[3]


def test_the_kernel_kills_no_process(memory_wasm: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pyaici.client.memory_attack", str(tmp_path), str(memory_wasm)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with ExitStack() as stack:
        try:
            group = stack.enter_context(memory_group(GROUP))
        except OSError as error:
            pytest.skip(f"no memory control group can be made here: {error}")
        attack = subprocess.run(
            [*command, *TIMES],
            preexec_fn=group.join,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert (attack.returncode, group.kills) == (0, 0), attack.stderr
    found = json.loads(attack.stdout)
    assert found["restarts"] == 0 and not found["flaws"]
    assert not found["good_errors"] and found["good_answers"] == found["good_steps"]
    # a script that reaches its own limit first fails with Python's MemoryError
    assert set(found["errors"]) <= {"owner_limit", "space", "time_limit", "failed"}
    assert found["errors"]["owner_limit"]
    assert found["memory"]["ended"] and found["builder"]["ended"]
    assert found["memory"]["limit"] < GROUP // 4, "the worker's limit must follow from the group's limit"
