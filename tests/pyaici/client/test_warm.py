"""Warming: later requests find filled tables, and failures of `aici_warm` affect no request."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.masks import apply_row
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import BUDGET, GUESTS, VOCABULARY, thoroughly_real


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "warm.c", tmp_path_factory.mktemp("warm") / "warm.wasm").path


@contextmanager
def running(wasm: Path, workers: int = 1, **limits: float) -> Iterator[Runtime]:
    """Yields a runtime in which the module has the name of its file as a tag."""
    with Runtime(workers=workers, limits={**BUDGET, **limits}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(wasm).id, wasm.stem)
        yield runtime


def warm(runtime: Runtime) -> int:
    return int(runtime.health()["templates"]["warm"])


def failures(runtime: Runtime) -> dict[str, int]:
    return dict(runtime.health()["warm_failures"])


def play(runtime: Runtime, seq: int, steps: int) -> list[str]:
    """Runs so many steps and returns what the guest prints, one word each. Late steps do not count."""
    log = ""
    while steps:
        result = runtime.begin_step([StepInput(seq)]).wait()
        steps -= result.mid[seq].verb != Verb.LATE
        log += result.logs.get(seq, "")
    return log.split()


@thoroughly_real
def test_a_later_request_finds_the_tables_filled(world: World | None, wasm: Path) -> None:
    """This also holds in workers that already have the template. A running sequence keeps its own tables."""
    with running(wasm, workers=2, warm_budget_ms=0) as cold:
        assert play(cold, cold.instantiate("warm", "d5"), 7) == ["miss"] * 7
        assert warm(cold) == 0
    with running(wasm, workers=2) as runtime:
        first = runtime.instantiate("warm", "m5")
        wait_until(lambda: warm(runtime) == 1)
        found = play(runtime, first, 7)
        assert found in (["miss"] * 7, ["hit"] * 5 + ["miss"] * 2), "it must keep the tables it started with"
        for _ in range(4):
            seq = runtime.instantiate("warm", "m5")
            assert play(runtime, seq, 7) == ["hit"] * 5 + ["miss"] * 2
        assert failures(runtime) == {}
        assert runtime.health()["builder"]["built"] == 1, "nothing was built again"


def test_masks_of_warm_and_cold_templates_are_equal(world: World, tmp_path: Path) -> None:
    """Runs the controller `regex` in a daemon that warms templates and in one that does not."""
    root = Path(__file__).resolve().parents[3]
    regex = build_controller(root / "controllers" / "regex", tmp_path / "warm.wasm").path
    patterns = [r'"([^"\\]|\\["n])*"', r"hel{1,9}o|h[a-z]+( [0-9]{1,3})?", r"(.|a)*b.{20}", "(é|中)+x"]
    with running(regex) as warming, running(regex, warm_budget_ms=0) as plain:
        for number, pattern in enumerate(patterns, start=1):
            warming.prepare("warm", pattern)
            wait_until(lambda number=number: warm(warming) == number)  # type: ignore[misc]
        assert warm(plain) == 0 and failures(warming) == {}
        for pattern in patterns * 3:
            rng = random.Random(pattern)
            seqs = warming.instantiate("warm", pattern), plain.instantiate("warm", pattern)
            tokens: list[int] = []
            for _ in range(25):
                masks = []
                for runtime, seq in zip((warming, plain), seqs, strict=True):
                    mid = runtime.begin_step([StepInput(seq, tokens, sampled=bool(tokens))]).wait().mid[seq]
                    while mid.verb == Verb.LATE:  # the machine is busy
                        mid = runtime.begin_step([StepInput(seq)]).wait().mid[seq]
                    logits = np.zeros(VOCABULARY.vocab_size)
                    if mid.verb == Verb.SAMPLE:
                        apply_row(logits, mid.row)
                    masks.append((mid.verb, mid.ff_tokens, np.isinf(logits).tolist()))
                assert masks[0] == masks[1]
                allowed = [token for token, forbidden in enumerate(masks[0][2]) if token and not forbidden]
                if masks[0][0] == Verb.STOP or not allowed:
                    break
                tokens = list(masks[0][1]) or [rng.choice(allowed)]


def test_a_template_in_use_is_replaced_by_a_warmer_one(world: World, wasm: Path) -> None:
    """The template numbers that clients know stay valid."""
    with running(wasm, workers=1, warm_budget_ms=3000) as runtime:
        seqs = []
        while len(seqs) < 2 or "miss" in play(runtime, seqs[-1], 1):
            seqs.append(runtime.instantiate("warm", "m50"))
        assert play(runtime, seqs[-1], 50) == ["hit"] * 49 + ["miss"]
        assert runtime.health()["builder"]["built"] == 1


def test_a_failed_warming_leaves_the_template_unchanged(world: World, wasm: Path) -> None:
    expected: Counter[str] = Counter()
    cases = {"f": "failed", "t": "trap", "l": "time_limit", "s": "failed", "r": "failed"}
    with running(wasm) as runtime:
        for number, (what, code) in enumerate(cases.items(), start=1):
            expected[code] += 1
            runtime.prepare("warm", f"{what}3")
            wait_until(lambda: failures(runtime) == expected)
            assert play(runtime, runtime.instantiate("warm", f"{what}3"), 4) == ["miss"] * 4
            runtime.prepare("warm", f"d{number}")
            wait_until(lambda number=number: warm(runtime) == number)  # type: ignore[misc]
            found = play(runtime, runtime.instantiate("warm", f"d{number}"), number + 1)
            assert found == ["hit"] * number + ["miss"]
        assert runtime.health()["restarts"] == 0


def test_a_late_failure_keeps_earlier_stages(world: World, wasm: Path) -> None:
    """The first stage ends after 2 ms of CPU time. The guest traps in its 901st call, after some 10 ms."""
    with running(wasm, warm_budget_ms=60) as runtime:
        runtime.prepare("warm", "t900")
        wait_until(lambda: failures(runtime) == {"trap": 1})
        assert warm(runtime) == 1
        assert play(runtime, runtime.instantiate("warm", "t900"), 1) == ["hit"]


def _idle(runtime: Runtime) -> bool:
    before = runtime.health()["builder"]["cpu_s"]
    time.sleep(0.3)
    return bool(runtime.health()["builder"]["cpu_s"] - before <= 0.02)


def test_the_cpu_time_of_warming_is_limited(world: World, wasm: Path) -> None:
    with running(wasm, warm_budget_ms=300) as runtime:
        runtime.prepare("warm", "m0")
        wait_until(lambda: warm(runtime) == 1)
        wait_until(lambda: _idle(runtime))
        assert runtime.health()["builder"]["cpu_s"] < 30
        assert failures(runtime) == {}


def test_the_growth_of_warmed_snapshots_is_limited(world: World, wasm: Path) -> None:
    """Warming evicts no template, and it ends when the snapshot has grown enough."""
    with running(wasm, warm_bytes=1 << 20) as runtime:
        runtime.prepare("warm", "d0")
        small = runtime.health()["templates"]["bytes"]
        runtime.prepare("warm", "p0")
        wait_until(lambda: warm(runtime) == 2 and _idle(runtime))
        health = runtime.health()
        assert 2 * small + (400 << 10) < health["templates"]["bytes"] < 2 * small + (1 << 20)
        assert failures(runtime) == {}
    with running(wasm, owner_snapshot_bytes=300 << 10) as runtime:
        runtime.prepare("warm", "d0")
        runtime.prepare("warm", "p0")
        wait_until(lambda: failures(runtime) == {"space": 1})
        health = runtime.health()["templates"]
        assert health["kept"] == 2 and health["bytes"] <= 300 << 10


def test_workers_report_the_bytes_of_warmed_snapshots(world: World, wasm: Path) -> None:
    with running(wasm, warm_bytes=2 << 20) as runtime:
        seq = runtime.instantiate("warm", "p0")
        wait_until(lambda: warm(runtime) == 1 and _idle(runtime))
        runtime.instantiate("warm", "p0")
        health = runtime.health()
        (worker,) = health["workers"]
        assert worker["snapshot_bytes"] == health["templates"]["bytes"] - len("p0")
        assert worker["snapshot_bytes"] > 900 << 10 and worker["templates_given_up"] == 0
        runtime.free([seq])


def test_builds_come_before_warming(world: World, wasm: Path) -> None:
    with running(wasm, warm_budget_ms=6000) as runtime:
        runtime.prepare("warm", "m0")
        wait_until(lambda: warm(runtime) == 1)  # its further stages take six seconds
        for number in range(20):
            begin = time.monotonic()
            runtime.prepare("warm", f"d{number}")
            assert time.monotonic() - begin < 0.1
        wait_until(lambda: warm(runtime) > 1)


def test_a_template_keeps_its_earlier_stages_when_the_builder_dies(wasm: Path) -> None:
    with running(wasm, warm_budget_ms=60_000) as runtime:
        runtime.prepare("warm", "m3")
        wait_until(lambda: warm(runtime) == 1)
        builder = runtime.health()["builder"]["pid"]
        os.kill(builder, signal.SIGKILL)
        wait_until(lambda: failures(runtime) == {"worker_died": 1})
        assert play(runtime, runtime.instantiate("warm", "m3"), 4) == ["hit"] * 3 + ["miss"]
        runtime.prepare("warm", "d4")
        wait_until(lambda: warm(runtime) == 2)
        assert play(runtime, runtime.instantiate("warm", "d4"), 5) == ["hit"] * 4 + ["miss"]


def test_a_warming_failure_is_logged_once_and_without_its_message(wasm: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Daemon(workers=1, limits=BUDGET, store=store) as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.register(VOCABULARY)
        module = runtime.upload(wasm).id
        for number in range(3):
            runtime.prepare(module, f"f{number}")
        wait_until(lambda: failures(runtime) == {"failed": 3})
        log = daemon.log()
        assert log.count("aici_warm") == 1 and module in log and "not today" not in log


def test_sequences_start_while_templates_are_replaced(wasm: Path) -> None:
    """Two clients build templates and start sequences as fast as they can."""
    with running(wasm, workers=2, max_templates=4) as runtime, Runtime(runtime._control._path) as other:
        other.register(VOCABULARY)
        problems: list[BaseException] = []

        def work(client: Runtime) -> None:
            try:
                for number in range(60):
                    seq = client.instantiate("warm", f"d{number % 6}")
                    assert len(play(client, seq, 3)) == 3
                    client.free([seq])
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(client,)) for client in (runtime, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems
        health: dict[str, Any] = runtime.health()
        assert health["templates"]["kept"] <= 4 and health["restarts"] == 0
