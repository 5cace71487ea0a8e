"""New sequences go to the worker with the least load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import guest_runtime, thoroughly_real

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def runtime(world: World | None, guest_wasm: Path, tmp_path: Path) -> Iterator[Runtime]:
    """Two workers, and the controller "greedy", whose mid_process uses all the time that it may."""
    greedy = build_controller(ROOT / "lab" / "guests" / "greedy.c", tmp_path / "greedy.wasm").path
    with guest_runtime(guest_wasm, 2, max_late_steps=100_000) as runtime:
        runtime.tag(runtime.upload(greedy).id, "greedy")
        yield runtime


def busy(runtime: Runtime) -> dict[int, float]:
    return {worker["index"]: worker["busy"] for worker in runtime.health()["workers"]}


def places(runtime: Runtime, seqs: list[int]) -> Counter[int]:
    return Counter(place(runtime, seq) for seq in seqs)


def place(runtime: Runtime, seq: int) -> int:
    """Returns the index of a sequence's worker."""
    link = runtime._live.link(seq)
    return next(index for (index, _), found in runtime._links._links.items() if found is link)


@thoroughly_real
def test_sequences_spread_evenly_over_idle_workers(runtime: Runtime) -> None:
    seqs = []
    for _ in range(5):
        seqs += [runtime.instantiate("guest", "ok") for _ in range(8)]
        runtime.begin_step([StepInput(seq) for seq in seqs]).wait()
        time.sleep(0.3)  # workers report their numbers of sequences once a second
    assert set(places(runtime, seqs).values()) == {20}
    assert all(worker["work_s"] > 0 for worker in runtime.health()["workers"])


def test_a_burst_of_starts_avoids_the_busy_worker(runtime: Runtime) -> None:
    greedy = runtime.instantiate("greedy", "0 -1")
    full = place(runtime, greedy)
    runtime.begin_step([StepInput(greedy)]).wait()  # its mid_process goes on for ever
    wait_until(lambda: busy(runtime)[full] >= 0.7, 0.2)
    time.sleep(1.5)  # so that the supervisor has asked too
    burst = [runtime.instantiate("guest", "ok") for _ in range(12)]
    assert full not in places(runtime, burst)
    assert max(share for index, share in busy(runtime).items() if index != full) < 0.5
    runtime.free([greedy])
    wait_until(lambda: busy(runtime)[full] <= 0.1, 0.2)
    time.sleep(2.5)
    later = [runtime.instantiate("guest", "ok") for _ in range(8)]
    assert places(runtime, later)[full] > 4, "the worker is idle again and has fewer sequences"
