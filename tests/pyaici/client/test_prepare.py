"""`Runtime.prepare` lets a controller read its argument before there is a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ArgumentError, TimeLimitError, UnknownControllerError, VocabularyError
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import VOCABULARY, guest_runtime, thoroughly_real

_SLOW_INIT = """
#include <aici.h>
#include <stdio.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    for (volatile unsigned i = 0; i < 40u << 20; i++) {
    }
    return 0;
}
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
"""


@pytest.fixture
def runtime(world: World | None, guest_wasm: Path) -> Iterator[Runtime]:
    with guest_runtime(guest_wasm) as runtime:
        yield runtime


@thoroughly_real
def test_prepare_raises_the_error_of_a_refused_argument(runtime: Runtime) -> None:
    with pytest.raises(ArgumentError, match="no such luck"):
        runtime.prepare("guest", "init_fail")
    with pytest.raises(TimeLimitError):
        runtime.prepare("guest", "init_loop")
    runtime.prepare("guest", "ok")
    with pytest.raises(UnknownControllerError):
        runtime.prepare("nonsense")
    with Runtime() as empty, pytest.raises(VocabularyError):
        empty.prepare("guest")


def test_prepare_leaves_no_sequence(runtime: Runtime) -> None:
    runtime.prepare("guest", "ok")
    assert sum(worker["sequences"] for worker in runtime.health()["workers"]) == 0


def test_a_prepared_sequence_starts_without_running_init(world: World, tmp_path: Path) -> None:
    """No worker uses CPU time for `aici_init`."""
    source = tmp_path / "slow.c"
    source.write_text(_SLOW_INIT)
    built = build_controller(source, tmp_path / "slow.wasm")
    with Runtime(workers=2, limits={"init_ms": 60_000}) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(built.path).id
        before = world.time.cpu_ns
        runtime.prepare(module, "x")
        prepared = world.time.cpu_ns
        runtime.instantiate(module, "x", (1, 2))
        assert prepared - before > 100 * (world.time.cpu_ns - prepared)
