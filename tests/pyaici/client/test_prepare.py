"""`Runtime.prepare` lets a controller read its argument before there is a prompt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicirt.contract.errors import ArgumentError, TimeLimitError, UnknownModuleError, VocabularyError
from pyaici.build import build_controller
from pyaici.client.runtime import Runtime

from .conftest import VOCABULARY

_SLOW_INIT = """
#include <aici.h>
#include <stdio.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    for (volatile unsigned i = 0; i < 400u << 20; i++) {
    }
    return 0;
}
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
"""


def test_prepare_raises_the_error_of_a_refused_argument(shared_runtime: Runtime) -> None:
    with pytest.raises(ArgumentError, match="no such luck"):
        shared_runtime.prepare("guest", "init_fail")
    with pytest.raises(TimeLimitError):
        shared_runtime.prepare("guest", "init_loop")
    shared_runtime.prepare("guest", "ok")
    with pytest.raises(UnknownModuleError):
        shared_runtime.prepare("nonsense")
    with Runtime() as empty, pytest.raises(VocabularyError):
        empty.prepare("guest")


def test_prepare_leaves_no_sequence(shared_runtime: Runtime) -> None:
    shared_runtime.prepare("guest", "ok")
    assert sum(worker["sequences"] for worker in shared_runtime.health()["workers"]) == 0


def test_a_prepared_sequence_starts_without_running_init(tmp_path: Path) -> None:
    """No worker uses CPU time for `aici_init`."""
    source = tmp_path / "slow.c"
    source.write_text(_SLOW_INIT)
    built = build_controller(source, tmp_path / "slow.wasm")
    with Runtime(workers=2, limits={"init_ms": 60_000}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(built.path).id
        runtime.prepare(module, "x")
        before = _cpu_seconds(runtime)
        runtime.instantiate(module, "x", (1, 2))
        assert _cpu_seconds(runtime) - before < 0.1


def _cpu_seconds(runtime: Runtime) -> float:
    """Returns the CPU time of all workers."""
    total = 0
    for worker in runtime.health()["workers"]:
        fields = Path(f"/proc/{worker['pid']}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
